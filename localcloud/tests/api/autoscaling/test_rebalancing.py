"""A group with capacity rebalancing replaces spot instances at risk: another one first, their end then."""

from __future__ import annotations

from typing import Any

import pytest

from api.templates import Client, Stacks, mixed
from localcloud.api.autoscaling import lifecycle
from localcloud.api.cloud import Cloud
from localcloud.api.ec2.spot_interruption import NotInterruptibleError
from localcloud.snapshot import Instance


def rebalanced(count: int, *, base: int = 0, most: int = 64, notice_s: int = 600) -> dict[str, Any]:
    resources = mixed(count, base=base)
    resources["Nodes"]["Properties"] |= {"CapacityRebalance": True, "MaxSize": most}
    if notice_s:
        resources["Hook"] = {
            "Type": "AWS::AutoScaling::LifecycleHook",
            "Properties": {
                "AutoScalingGroupName": {"Ref": "Nodes"},
                "LifecycleTransition": lifecycle.TERMINATING,
                "HeartbeatTimeout": notice_s,
            },
        }
    return resources


def settled(cloud: Cloud) -> dict[str, Instance]:
    """Return the instances by id once nothing changes any more."""
    for _ in range(20):
        if not cloud.wait_for_change(0):
            return {instance.id: instance for instance in cloud.snapshot().instances}
    raise AssertionError("the group does not come to rest")


@pytest.mark.parametrize("way", ["recommendation", "notice"])
def test_a_successor_runs_beside_the_one_at_risk_which_then_has_its_time(
    cloud: Cloud, client: Client, stacks: Stacks, way: str
) -> None:
    group = stacks.physical(stacks.create(rebalanced(2)), "Nodes")
    victim, other = cloud.snapshot().instances
    if way == "notice":
        cloud.interrupt(victim.id, 600)
    else:
        cloud.recommend(victim.id)
    after = settled(cloud)
    (successor,) = after.keys() - {victim.id, other.id}
    assert {id: instance.target_state for id, instance in after.items()} == {
        victim.id: "Terminated",
        other.id: "InService",
        successor: "InService",
    }
    assert after[successor].spot and after[victim.id].rebalance_at and not after[successor].rebalance_at
    assert bool(after[victim.id].ends_at) == (way == "notice")
    assert settled(cloud) == after, "no second successor"
    (described,) = client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])[
        "AutoScalingGroups"
    ]
    assert (described["DesiredCapacity"], described["CapacityRebalance"]) == (2, True)


def test_a_change_of_state_alone_is_told(cloud: Cloud, stacks: Stacks) -> None:
    stacks.create(rebalanced(2))
    cloud.wait_for_change(0)
    cloud.recommend(cloud.snapshot().instances[0].id)
    told = [cloud.wait_for_change(0) for _ in range(4)]
    assert told == [True, True, False, False], "the successor, and then the end of the other"


def test_a_group_without_it_waits_until_the_instance_is_gone(cloud: Cloud, stacks: Stacks) -> None:
    stacks.create(mixed(2))
    victim, _ = before = cloud.snapshot().instances
    cloud.recommend(victim.id)
    assert settled(cloud).keys() == {instance.id for instance in before}
    cloud.interrupt(victim.id, 0)
    assert victim.id not in settled(cloud)


def test_it_is_switched_on_and_off_by_an_update(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    resources = rebalanced(2)
    name = stacks.create(resources)
    resources["Nodes"]["Properties"]["CapacityRebalance"] = False
    stacks.update(name, resources)
    victim, other = cloud.snapshot().instances
    cloud.recommend(victim.id)
    assert settled(cloud).keys() == {victim.id, other.id}
    resources["Nodes"]["Properties"]["CapacityRebalance"] = True
    stacks.update(name, resources)
    assert len(settled(cloud)) == 3


def test_all_at_risk_are_replaced_but_for_what_exceeds_the_maximum_by_a_tenth(cloud: Cloud, stacks: Stacks) -> None:
    stacks.create(rebalanced(10, most=10))
    victims = cloud.snapshot().instances[:3]
    for victim in victims:
        cloud.recommend(victim.id)
    after = settled(cloud)
    leaving = [instance.id for instance in after.values() if instance.target_state == "Terminated"]
    assert sorted(leaving) == sorted(victim.id for victim in victims), "one after the other"
    assert len(after) == 13


def test_a_small_group_at_its_maximum_replaces_none(cloud: Cloud, stacks: Stacks) -> None:
    stacks.create(rebalanced(2, most=2))
    victim, other = cloud.snapshot().instances
    cloud.recommend(victim.id)
    assert settled(cloud).keys() == {victim.id, other.id}


def test_an_instance_that_goes_before_its_successor_runs_is_not_replaced_twice(cloud: Cloud, stacks: Stacks) -> None:
    stacks.create(rebalanced(2, notice_s=0))
    victim, other = cloud.snapshot().instances
    cloud.interrupt(victim.id, 0)
    after = settled(cloud)
    assert len(after) == 2 and other.id in after and victim.id not in after


def test_one_on_demand_is_never_at_risk(cloud: Cloud, stacks: Stacks) -> None:
    stacks.create(rebalanced(2, base=1))
    kept = next(instance for instance in cloud.snapshot().instances if not instance.spot)
    with pytest.raises(NotInterruptibleError):
        cloud.recommend(kept.id)
    assert len(settled(cloud)) == 2
