"""Capacity: pools with shortages, zones without a type, and a group's reactions to both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from moto.ec2.exceptions import EC2ClientError

from api.templates import Stacks, nodes
from localcloud.api.autoscaling import groups
from localcloud.api.cloud import Cloud
from localcloud.api_faults import capacity
from localcloud.api_faults.capacity import SHORT_S, Capacity
from localcloud.api_faults.throttling import Draws

ZONES = ["us-east-1a", "us-east-1b", "us-east-1c"]


def launches(pools: Capacity, count: int, zone: str = "us-east-1a") -> str:
    """Launch `count` instances at the same time; return + or - for each: whether it had capacity."""
    seen = ""
    for _ in range(count):
        try:
            pools.check("c5.2xlarge", zone, ZONES)
            seen += "+"
        except EC2ClientError as error:
            assert error.code == "InsufficientInstanceCapacity"
            assert f"sufficient c5.2xlarge capacity in the Availability Zone you requested ({zone})" in error.message
            seen += "-"
    return seen


def test_short_pool_recovers_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "SHORTAGES", 1.0)

    def begin_and_go_on(seed: int) -> tuple[str, str]:
        now = 0.0
        pools = Capacity(Draws(seed), clock=lambda: now)
        begun = launches(pools, 3)
        now = SHORT_S[1]
        return begun, launches(pools, 20)

    assert {begin_and_go_on(seed) for seed in range(20)} == {("---", "+" * 20), ("+--", "+" * 20)}


def test_zone_without_type_stays_the_same_and_is_never_the_first() -> None:
    seen = [Capacity(Draws(seed)).lacking("c5.2xlarge", ZONES) for seed in range(300)]
    assert set(seen) == {"", "us-east-1b", "us-east-1c"}
    assert 150 < seen.count("") < 250
    seed = seen.index("us-east-1b")
    pools = Capacity(Draws(seed))
    for _ in range(3):
        with pytest.raises(EC2ClientError, match="not supported in your requested Availability Zone") as caught:
            pools.check("c5.2xlarge", "us-east-1b", ZONES)
        assert caught.value.code == "Unsupported"
        assert caught.value.message.endswith("or choosing us-east-1a, us-east-1c.")
    assert Capacity(Draws(seed)).lacking("c5.2xlarge", ZONES[:1]) == ""


@pytest.fixture
def cloud(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """Return a cloud without any type in zone b, and with a shortage in zone a at first."""
    monkeypatch.setattr(capacity, "SHORTAGES", 1.0)
    monkeypatch.setattr(capacity, "MAX_IN_SHORTAGE", 0)
    monkeypatch.setattr(capacity, "SHORT_S", (2.0, 2.0))
    monkeypatch.setattr(Capacity, "lacking", lambda self, instance_type, zones: "us-east-1b")
    monkeypatch.setattr(groups, "_RETRY_S", 0.2)
    return cloud


def test_group_retries_zones_until_it_has_desired_size(cloud: Cloud, aws: Callable[[str], Any]) -> None:
    stacks = Stacks(aws)
    name = stacks.create(nodes(2))
    assert stacks.describe(name)["StackStatus"] == "CREATE_COMPLETE"
    group = stacks.physical(name, "Nodes")

    def members() -> list[str]:
        (found,) = aws("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
        return [each["AvailabilityZone"] for each in found["Instances"]]

    assert members() == []
    while len(members()) < 2:
        cloud.wait_for_change(0.1)
    assert members() == ["us-east-1a", "us-east-1a"]
    activities = aws("autoscaling").describe_scaling_activities(AutoScalingGroupName=group)["Activities"]
    failures = [each["StatusMessage"] for each in activities if each["StatusCode"] == "Failed"]
    for words in ("We currently do not have sufficient", "not supported in your requested Availability Zone"):
        assert any(words in each for each in failures)


def test_offerings_omit_types_missing_in_zone(cloud: Cloud, aws: Callable[[str], Any]) -> None:
    offered = aws("ec2").describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": ["c5.2xlarge"]}]
    )["InstanceTypeOfferings"]
    zones = {each["Location"] for each in offered}
    assert "us-east-1a" in zones
    assert "us-east-1b" not in zones
