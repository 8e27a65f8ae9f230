"""The message about the instances and the cost of a first deployment."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from cluster.aws.price_list import EBS, included_price
from cluster.aws.prices import Prices
from cluster.deploy.cost import describe_bounds, describe_deployment, describe_rest, further_costs
from cluster.session import Session


@pytest.fixture
def task(session: Session, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Return a session of a cluster with two workers of unknown price."""
    monkeypatch.setenv("AWS_REGION", "eu-nowhere-1")
    monkeypatch.setattr(session.prices, "per_hour", lambda kinds, wait_s: dict.fromkeys(kinds))
    return session


def test_deployment_lists_possible_types_and_spot_count(task: Session) -> None:
    task.config = dataclasses.replace(
        task.config, workers=4, worker_alternatives=("c5.4xlarge",), spot=True, on_demand_workers=1
    )
    said = describe_deployment(task)
    assert "4 c5.2xlarge or c5.4xlarge workers, 3 of them on spot" in said
    assert "price unknown (instances unknown, a NAT gateway unknown" in said


def at(task: Session, monkeypatch: pytest.MonkeyPatch, region: str, **keys: Any) -> str:
    """Return the sentence for a region without an answer from the price list, with changed configuration keys."""
    monkeypatch.setenv("AWS_REGION", region)
    prices = Prices(task.aws, Path("/nowhere/prices.json"))
    monkeypatch.setattr(prices, "begin", lambda kinds: None)
    task.prices = prices
    task.config = dataclasses.replace(task.config, **keys)
    return describe_deployment(task)


def test_instances_gateways_and_addresses_are_added_up(task: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    said = at(task, monkeypatch, "us-east-1", ssh_cidr=("198.51.100.7/32",))
    instances = 0.0416 + 2 * 0.34
    volumes = (50 + 2 * 100) * 0.08 / 730
    total = instances + volumes + 0.055
    assert f", ${total:.3f}/h together (instances ${instances:.3f}/h, 3 root volumes ${volumes:.3f}/h, " in said
    assert "a NAT gateway $0.045/h, 2 public IPv4 addresses $0.010/h; prices of 2026-07-20), plus " in said
    assert said.endswith("plus up to $0.080/h for CPU credits (t3.medium), other storage and traffic.")


def test_additional_iops_and_throughput_are_added(task: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    said = at(task, monkeypatch, "us-east-1", worker_volume_iops=13000, worker_volume_mib_s=1125)
    usd = 250 * 0.08 / 730 + 2 * (10000 * 0.005 + 1000 * 0.04) / 730
    assert f"3 root volumes ${usd:.3f}/h" in said
    assert "a root volume $0.005/h" in describe_rest(task)


def test_other_costs_are_added_up_without_volume_price(task: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Prices, "service", lambda prices, item: None if item == EBS else included_price("us-east-1", item)
    )
    said = at(task, monkeypatch, "us-east-1")
    instances = 0.0416 + 2 * 0.34
    assert f", ${instances + 0.055:.3f}/h together" in said and said.endswith("(t3.medium), storage and traffic.")
    assert "volume" not in said + describe_rest(task)
    assert "(t3.medium), storage. " in describe_rest(task)


def test_nat_gateway_of_each_zone_is_counted_and_spot_is_an_upper_bound(
    task: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"availability_zones": 2, "nat_gateways": "one-per-zone", "ssh_access": "session-manager", "spot": True}
    said = at(task, monkeypatch, "us-east-1", **keys)
    assert ", at most $" in said
    assert "2 NAT gateways $0.090/h, 2 public IPv4 addresses $0.010/h" in said


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"idle_minutes": 60}, "all workers are terminated after 1 h idle without a live run."),
        (
            {"idle_minutes": 30, "max_hours": 12.0, "then_stop": True, "budget_usd": 500.0},
            "after 30 min idle without a live run, or after 12 h, or after the last run, "
            "or above a budget of $500 a month.",
        ),
        ({}, "no cost limit is set: workers cost money until you remove them. To set a limit: idle_minutes, max_hours"),
        (
            {"budget_usd": 500.0, "budget_stops_workers": False, "budget_emails": ("ops@example.com",)},
            "no cost limit is set (a budget of $500 a month only notifies): ",
        ),
    ],
)
def test_cost_limits_or_their_absence_are_shown(task: Session, keys: dict[str, Any], said: str) -> None:
    config = dataclasses.replace(task.config, **{"idle_minutes": 0, **keys})
    assert said in describe_bounds(config)


def test_master_nat_gateway_and_storage_cost_without_workers(task: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    at(task, monkeypatch, "us-east-1", ssh_cidr=("198.51.100.7/32",))
    master, volume = 0.0416, 50 * 0.08 / 730
    assert describe_rest(task) == (
        f"costs that continue without workers until `fab down`: ${master + volume + 0.055:.3f}/h (a t3.medium master "
        f"${master:.3f}/h, a root volume ${volume:.3f}/h, a NAT gateway $0.045/h, 2 public IPv4 addresses $0.010/h), "
        "plus up to $0.080/h for CPU credits (t3.medium), other storage. "
        "Kept data costs money after `fab down`."
    )


def test_resources_without_price_are_listed_and_not_counted_as_zero(
    task: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"fsx_capacity_gib": 1200, "vpc_endpoints": ("s3", "ssm"), "kms_key": "create", "retain_data": False}
    at(task, monkeypatch, "eu-west-3", **keys)
    said = describe_rest(task)
    assert (
        "without workers until `fab down`: price unknown (a t3.medium master unknown, a NAT gateway unknown, " in said
    )
    assert "3 interface endpoints unknown), plus" in said
    assert "an unknown price for CPU credits (t3.medium), storage, " in said
    assert said.endswith("storage, 1,200 GiB of FSx for Lustre, a KMS key.")


def test_interface_endpoint_is_billed_per_service_and_zone(task: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"availability_zones": 2, "vpc_endpoints": ("s3", "ecr", "ssm")}
    assert "10 interface endpoints $0.100/h" in at(task, monkeypatch, "us-east-1", **keys)
    assert "10 interface endpoints $0.100/h" in describe_rest(task)
    existing = {"vpc_id": "vpc-01234567", "private_subnet_ids": ("subnet-01234567", "subnet-01234568")}
    assert "endpoint" not in at(task, monkeypatch, "us-east-1", **keys, **existing)


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        (("t3.medium", "c5.2xlarge"), "up to $0.080/h for CPU credits (t3.medium)"),
        (("c5.large", "t3a.2xlarge"), "up to $0.240/h for CPU credits (t3a.2xlarge)"),
        (("t4g.large", "t3.nano"), "up to $0.151/h for CPU credits (t4g.large, t3.nano)"),
        (("t3.medium", "t3.medium"), "up to $0.160/h for CPU credits (t3.medium)"),
        (("t3.none",), "an unknown price for CPU credits (t3.none)"),
    ],
)
def test_burstable_instance_may_cost_cpu_credits(
    task: Session, monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...], words: str
) -> None:
    at(task, monkeypatch, "us-east-1")
    assert further_costs(task.config, task.prices, kinds, {})[0] == words


def test_other_instances_cost_no_cpu_credits(task: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    at(task, monkeypatch, "us-east-1")
    assert further_costs(task.config, task.prices, ["c5.large", "t2.medium"], {}) == ["storage"]
