"""Throttling: its frequency and duration, the error replies, and the affected calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from api.templates import connect, served
from localcloud.api.cloud import Cloud
from localcloud.api_faults import throttling
from localcloud.api_faults.throttling import BURST_S, LENGTHS, Draws, Throttle


def test_draws_of_concerns_are_independent() -> None:
    alone, beside = Draws(7), Draws(7)
    for _ in range(100):
        beside.draw("throttling").random()
    assert alone.draw("boot").random() == beside.draw("boot").random()


def test_draws_do_not_change_between_versions_of_python() -> None:
    assert round(Draws(7).draw("boot").random(), 6) == 0.816969


def refusals(throttle: Throttle, calls: int, action: str = "DescribeInstances") -> list[bool]:
    return [throttle.refusal({}, "ec2", action) is not None for _ in range(calls)]


def test_seed_throttles_same_calls_regardless_of_other_calls() -> None:
    one, other = Throttle(Draws(7)), Throttle(Draws(7))
    refusals(other, 50, "DescribeVpcs")
    assert refusals(one, 500) == refusals(other, 500)
    assert refusals(Throttle(Draws(7)), 500) != refusals(Throttle(Draws(8)), 500)


def test_bursts_are_rare_bounded_and_usually_shorter_than_sdk_retries() -> None:
    seen = refusals(Throttle(Draws(3)), 20_000)
    bursts = [len(list(group)) for refused, group in itertools.groupby(seen) if refused]
    assert set(bursts) == set(LENGTHS), "a call gets through after each burst"
    assert 0.03 < len(bursts) / len(seen) < 0.06
    assert sum(length < 3 for length in bursts) / len(bursts) > 0.7
    assert max(bursts) >= 5, "the three to five attempts of botocore are not always enough"


def test_rejections_left_from_expired_burst_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(throttling, "PROBABILITY", 1.0)
    monkeypatch.setattr(throttling, "LENGTHS", {5: 1})
    throttle = Throttle(Draws(1), clock=lambda: now)
    assert refusals(throttle, 1) == [True]
    monkeypatch.setattr(throttling, "PROBABILITY", 0.0)
    now += BURST_S - 1
    assert refusals(throttle, 1) == [True]
    now += 1
    assert refusals(throttle, 5) == [False] * 5


@pytest.fixture(scope="module")
def cloud() -> Cloud:
    return Cloud(fault_seed=1)


@pytest.fixture(scope="module")
def endpoint(cloud: Cloud) -> Iterator[str]:
    with served(cloud) as address:
        yield address


@pytest.mark.parametrize(
    ("service", "call", "code", "status", "message"),
    [
        ("ec2", "describe_vpcs", "RequestLimitExceeded", 503, "Request limit exceeded."),
        ("autoscaling", "describe_auto_scaling_groups", "Throttling", 400, "Rate exceeded"),
        ("ssm", "describe_parameters", "ThrottlingException", 400, "Rate exceeded"),
    ],
)
def test_throttled_client_gets_error_of_service(
    endpoint: str, service: str, call: str, code: str, status: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttling, "PROBABILITY", 1.0)
    with pytest.raises(ClientError) as caught:
        getattr(connect(endpoint, service), call)()
    answer = caught.value.response
    assert (answer["Error"]["Code"], answer["Error"]["Message"]) == (code, message)
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == status


def test_clouds_own_calls_are_never_throttled(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttling, "PROBABILITY", 1.0)
    for _ in range(10):
        cloud.loopback.client("ec2").describe_vpcs()
