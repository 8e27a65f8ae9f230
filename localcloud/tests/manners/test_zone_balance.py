"""Groups balance their zones: launch first, terminate then, and not where the process is suspended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from api.templates import Stacks, nodes
from localcloud.api.cloud import Cloud
from localcloud.manners import capacity, late_states, propagation, throttling, zone_balance
from manners.clouds import client, served


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """Return a cloud without other manners than slow boots and balanced zones."""
    monkeypatch.setattr(throttling, "PROBABILITY", 0.0)
    monkeypatch.setattr(propagation, "PROBABILITY", 0.0)
    monkeypatch.setattr(capacity, "SHORTAGES", 0.0)
    monkeypatch.setattr(capacity, "LACKS", 0.0)
    monkeypatch.setattr(late_states, "SLOW_BOOTS", 0.0)
    monkeypatch.setattr(late_states, "BOOT_S", (0.5, 1.0))
    monkeypatch.setattr(zone_balance, "WAIT_S", (0.5, 1.0))
    return Cloud(manners_seed=1)


@pytest.fixture
def aws(cloud: Cloud) -> Iterator[Callable[[str], Any]]:
    with served(cloud) as address:
        yield lambda service: client(address, service)


def make_uneven(cloud: Cloud, aws: Callable[[str], Any], *suspended: str) -> str:
    """Return a group of three in one zone, which could be in two."""
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
    """Return the different distributions of a group within so many tenths of a second."""
    seen = [zones(cloud, group)]
    for _ in range(rounds):
        cloud.wait_for_change(0.1)
        if (now := zones(cloud, group)) != seen[-1]:
            seen.append(now)
    return seen


def test_one_more_is_launched_in_the_emptier_zone_before_one_leaves_the_fuller(
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


@pytest.mark.parametrize("process", ["AZRebalance", "Terminate"])
def test_a_group_whose_process_is_suspended_stays_uneven(cloud: Cloud, aws: Callable[[str], Any], process: str) -> None:
    assert watch(cloud, make_uneven(cloud, aws, process), 40) == [{"us-east-1a": 3}]
