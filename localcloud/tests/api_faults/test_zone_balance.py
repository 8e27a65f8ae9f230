"""Groups balance their zones: they launch first, then terminate, unless the process is suspended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from api.templates import Stacks, nodes
from localcloud.api.cloud import Cloud
from localcloud.api_faults import zone_balance


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zone_balance, "WAIT_S", (0.5, 1.0))


def make_uneven(cloud: Cloud, aws: Callable[[str], Any], *suspended: str) -> str:
    """Return the name of a group with three instances in one of its two zones."""
    stacks = Stacks(aws)
    name = stacks.create(nodes(0))
    group = stacks.physical(name, "Nodes")
    scaling = aws("autoscaling")
    if suspended:
        scaling.suspend_processes(AutoScalingGroupName=group, ScalingProcesses=list(suspended))
    both = f"{stacks.physical(name, 'A')},{stacks.physical(name, 'B')}"
    scaling.update_auto_scaling_group(AutoScalingGroupName=group, VPCZoneIdentifier=stacks.physical(name, "A"))
    scaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=3)
    scaling.update_auto_scaling_group(AutoScalingGroupName=group, VPCZoneIdentifier=both)
    assert zones(cloud, group) == {"us-east-1a": 3}
    return group


def zones(cloud: Cloud, group: str) -> dict[str, int]:
    states = cloud._backend("autoscaling").autoscaling_groups[group].active_instances()
    return dict(Counter(state.availability_zone for state in states))


def watch(cloud: Cloud, group: str, rounds: int) -> list[dict[str, int]]:
    """Return a group's successive distributions over its zones within this number of tenths of a second."""
    seen = [zones(cloud, group)]
    for _ in range(rounds):
        cloud.wait_for_change(0.1)
        if (now := zones(cloud, group)) != seen[-1]:
            seen.append(now)
    return seen


def test_instance_is_launched_in_emptier_zone_before_termination_in_fuller(
    cloud: Cloud, aws: Callable[[str], Any]
) -> None:
    group = make_uneven(cloud, aws)
    assert watch(cloud, group, 60) == [
        {"us-east-1a": 3},
        {"us-east-1a": 3, "us-east-1b": 1},
        {"us-east-1a": 2, "us-east-1b": 1},
    ]
    activities = aws("autoscaling").describe_scaling_activities(AutoScalingGroupName=group)["Activities"]
    assert any("had to be rebalanced" in each["Cause"] for each in activities)


def test_group_with_suspended_process_stays_uneven(cloud: Cloud, aws: Callable[[str], Any]) -> None:
    assert watch(cloud, make_uneven(cloud, aws, "AZRebalance"), 25) == [{"us-east-1a": 3}]
