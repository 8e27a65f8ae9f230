"""Instances leave a group after a terminating hook, and spot instances at risk once their replacements run."""

from __future__ import annotations

import time
from typing import Any

import pytest
from botocore.exceptions import ClientError

from api.templates import Client, Stacks, mixed, nodes
from localcloud.api.autoscaling import instance_lifecycle
from localcloud.api.cloud import Cloud
from localcloud.snapshot import Instance
from refusals.templates import ref, resource


def hooked(count: int, *, transition: str = instance_lifecycle.TERMINATING, seconds: int = 600) -> dict[str, Any]:
    resources = nodes(count)
    resources["Hook"] = resource(
        "AutoScaling::LifecycleHook",
        AutoScalingGroupName=ref("Nodes"),
        LifecycleTransition=transition,
        HeartbeatTimeout=seconds,
        DefaultResult="CONTINUE",
    )
    return resources


def states(cloud: Cloud) -> list[str]:
    return sorted(instance.target_state for instance in cloud.snapshot().instances)


def let_time_pass(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = time.monotonic
    monkeypatch.setattr("localcloud.api.autoscaling.instance_lifecycle.time.monotonic", lambda: now() + seconds)


def test_removed_instance_runs_until_its_hook_times_out(
    cloud: Cloud, client: Client, stacks: Stacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = stacks.physical(stacks.create(hooked(2)), "Nodes")
    client("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    cloud.wait_for_change(0)
    assert states(cloud) == ["InService", "Terminated"]
    (described,) = client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])[
        "AutoScalingGroups"
    ]
    assert sorted(each["LifecycleState"] for each in described["Instances"]) == ["InService", "Terminating:Wait"]
    let_time_pass(monkeypatch, 601)
    assert cloud.wait_for_change(0)
    assert states(cloud) == ["InService"]


def test_completed_lifecycle_action_terminates_instance_immediately(
    cloud: Cloud, client: Client, stacks: Stacks
) -> None:
    name = stacks.create(hooked(1))
    group, autoscaling = stacks.physical(name, "Nodes"), client("autoscaling")
    (instance,) = cloud.snapshot().instances
    autoscaling.terminate_instance_in_auto_scaling_group(InstanceId=instance.id, ShouldDecrementDesiredCapacity=False)
    assert states(cloud) == ["InService", "Terminated"], "its replacement starts while it runs"
    done = {
        "LifecycleHookName": stacks.physical(name, "Hook"),
        "AutoScalingGroupName": group,
        "InstanceId": instance.id,
        "LifecycleActionResult": "CONTINUE",
    }
    autoscaling.complete_lifecycle_action(**done)
    assert states(cloud) == ["InService"]
    with pytest.raises(ClientError, match="No active Lifecycle Action"):
        autoscaling.complete_lifecycle_action(**done)


def test_stack_is_destroyed_without_waiting(cloud: Cloud, stacks: Stacks) -> None:
    stacks.delete(stacks.create(hooked(2)))
    assert cloud.snapshot().instances == ()


def test_launch_hook_is_rejected_with_reason(stacks: Stacks) -> None:
    name = stacks.create(hooked(1, transition="autoscaling:EC2_INSTANCE_LAUNCHING"))
    assert stacks.describe(name)["StackStatus"] == "ROLLBACK_COMPLETE"
    assert any("only supports lifecycle hooks of" in reason for reason in stacks.reasons(name, "Hook"))


def test_instance_without_hook_is_terminated_immediately(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    group = stacks.physical(stacks.create(nodes(2)), "Nodes")
    client("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    assert states(cloud) == ["InService"]


def rebalanced(count: int, *, base: int = 0, most: int = 64, notice_s: int = 600) -> dict[str, Any]:
    resources = mixed(count, base=base)
    resources["Nodes"]["Properties"] |= {"CapacityRebalance": True, "MaxSize": most}
    if notice_s:
        resources["Hook"] = resource(
            "AutoScaling::LifecycleHook",
            AutoScalingGroupName=ref("Nodes"),
            LifecycleTransition=instance_lifecycle.TERMINATING,
            HeartbeatTimeout=notice_s,
        )
    return resources


def settled(cloud: Cloud) -> dict[str, Instance]:
    """Wait until a group no longer changes; return its instances by id."""
    for _ in range(20):
        if not cloud.wait_for_change(0):
            return {instance.id: instance for instance in cloud.snapshot().instances}
    raise AssertionError("the group does not stop changing")


@pytest.mark.parametrize("way", ["recommendation", "notice"])
def test_replacement_runs_before_instance_at_risk_waits_for_hook(
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


def test_only_a_change_of_state_is_reported(cloud: Cloud, stacks: Stacks) -> None:
    stacks.create(rebalanced(2))
    cloud.wait_for_change(0)
    cloud.recommend(cloud.snapshot().instances[0].id)
    told = [cloud.wait_for_change(0) for _ in range(4)]
    assert told == [True, True, False, False], "the successor, and then the end of the other"


def test_update_enables_and_disables_capacity_rebalancing(cloud: Cloud, client: Client, stacks: Stacks) -> None:
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


def test_replacements_exceed_maximum_by_at_most_a_tenth(cloud: Cloud, stacks: Stacks) -> None:
    stacks.create(rebalanced(10, most=10))
    victims = cloud.snapshot().instances[:3]
    for victim in victims:
        cloud.recommend(victim.id)
    after = settled(cloud)
    leaving = [instance.id for instance in after.values() if instance.target_state == "Terminated"]
    assert sorted(leaving) == sorted(victim.id for victim in victims), "one after the other"
    assert len(after) == 13


def test_small_group_at_maximum_starts_no_replacement(cloud: Cloud, stacks: Stacks) -> None:
    stacks.create(rebalanced(2, most=2))
    victim, other = cloud.snapshot().instances
    cloud.recommend(victim.id)
    assert settled(cloud).keys() == {victim.id, other.id}


def test_instance_terminated_before_its_replacement_runs_is_replaced_once(cloud: Cloud, stacks: Stacks) -> None:
    stacks.create(rebalanced(2, notice_s=0))
    victim, other = cloud.snapshot().instances
    cloud.interrupt(victim.id, 0)
    after = settled(cloud)
    assert len(after) == 2 and other.id in after and victim.id not in after


def test_unhealthy_member_is_replaced_and_activities_give_the_cause(
    cloud: Cloud, client: Client, stacks: Stacks
) -> None:
    group, autoscaling = stacks.physical(stacks.create(nodes(2)), "Nodes"), client("autoscaling")
    sick, well = (instance.id for instance in cloud.snapshot().instances)
    autoscaling.set_instance_health(InstanceId=sick, HealthStatus="Unhealthy")
    (described,) = autoscaling.describe_auto_scaling_instances(InstanceIds=[sick])["AutoScalingInstances"]
    assert described["HealthStatus"].lower() == "unhealthy"
    cloud.wait_for_change(0)
    left = {instance.id for instance in cloud.snapshot().instances}
    assert (well in left, sick in left, len(left)) == (True, False, 2)
    launched, ended = autoscaling.describe_scaling_activities(AutoScalingGroupName=group)["Activities"][:2]
    assert ended["Description"] == f"Terminating EC2 instance: {sick}"
    assert ended["Cause"].endswith("was taken out of service in response to a user health-check.")
    assert launched["Description"].startswith("Launching a new EC2 instance")
    assert launched["Cause"].endswith("was launched in response to an unhealthy instance needing to be replaced.")
    with pytest.raises(ClientError, match="No managed instance found for instance ID"):
        autoscaling.set_instance_health(InstanceId=sick, HealthStatus="Unhealthy")
    with pytest.raises(ClientError, match=r"Valid instance health states are: \[Healthy, Unhealthy\]"):
        autoscaling.set_instance_health(InstanceId=well, HealthStatus="Ill")


def test_unhealthy_member_waits_for_the_hook_of_its_group(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    stacks.create(hooked(1))
    (sick,) = cloud.snapshot().instances
    client("autoscaling").set_instance_health(InstanceId=sick.id, HealthStatus="Unhealthy")
    cloud.wait_for_change(0)
    assert states(cloud) == ["InService", "Terminated"]
    cloud.wait_for_change(0)
    assert len(states(cloud)) == 2, "it is replaced once"


def test_health_status_is_ignored_in_grace_period_unless_overridden(
    cloud: Cloud, client: Client, stacks: Stacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    resources = nodes(1)
    resources["Nodes"]["Properties"]["HealthCheckGracePeriod"] = 300
    stacks.create(resources)
    autoscaling = client("autoscaling")

    def mark(**more: Any) -> str:
        (instance,) = cloud.snapshot().instances
        autoscaling.set_instance_health(InstanceId=instance.id, HealthStatus="Unhealthy", **more)
        cloud.wait_for_change(0)
        return str(instance.id)

    def ids() -> list[str]:
        return [instance.id for instance in cloud.snapshot().instances]

    assert mark() in ids()
    assert mark(ShouldRespectGracePeriod=False) not in ids()
    assert mark(ShouldRespectGracePeriod=True) in ids()
    let_time_pass(monkeypatch, 301)
    assert mark() not in ids()


def test_group_without_replacement_of_unhealthy_members_keeps_them(
    cloud: Cloud, client: Client, stacks: Stacks
) -> None:
    group, autoscaling = stacks.physical(stacks.create(nodes(1)), "Nodes"), client("autoscaling")
    (sick,) = cloud.snapshot().instances
    autoscaling.suspend_processes(AutoScalingGroupName=group, ScalingProcesses=["ReplaceUnhealthy"])
    autoscaling.set_instance_health(InstanceId=sick.id, HealthStatus="Unhealthy")
    cloud.wait_for_change(0)
    assert [instance.id for instance in cloud.snapshot().instances] == [sick.id]
    autoscaling.set_instance_health(InstanceId=sick.id, HealthStatus="Healthy")
    autoscaling.resume_processes(AutoScalingGroupName=group, ScalingProcesses=["ReplaceUnhealthy"])
    cloud.wait_for_change(0)
    assert [instance.id for instance in cloud.snapshot().instances] == [sick.id]
