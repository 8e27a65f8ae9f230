"""A terminating lifecycle hook gives instances time before they end."""

from __future__ import annotations

import time
from typing import Any

import pytest
from botocore.exceptions import ClientError

from api.templates import Client, Stacks, nodes
from localcloud.api.autoscaling import lifecycle
from localcloud.api.cloud import Cloud


def hooked(count: int, *, transition: str = lifecycle.TERMINATING, seconds: int = 600) -> dict[str, Any]:
    resources = nodes(count)
    resources["Hook"] = {
        "Type": "AWS::AutoScaling::LifecycleHook",
        "Properties": {
            "AutoScalingGroupName": {"Ref": "Nodes"},
            "LifecycleTransition": transition,
            "HeartbeatTimeout": seconds,
            "DefaultResult": "CONTINUE",
        },
    }
    return resources


def states(cloud: Cloud) -> list[str]:
    return sorted(instance.target_state for instance in cloud.snapshot().instances)


def let_time_pass(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = time.monotonic
    monkeypatch.setattr("localcloud.api.autoscaling.lifecycle.time.monotonic", lambda: now() + seconds)


def test_a_shrunk_groups_instance_runs_on_until_its_time_is_over(
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


def test_an_action_that_is_completed_ends_the_instance_at_once(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    name = stacks.create(hooked(1))
    group, autoscaling = stacks.physical(name, "Nodes"), client("autoscaling")
    (instance,) = cloud.snapshot().instances
    autoscaling.terminate_instance_in_auto_scaling_group(InstanceId=instance.id, ShouldDecrementDesiredCapacity=False)
    assert states(cloud) == ["InService", "Terminated"], "its successor starts beside it"
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


def test_a_stack_is_destroyed_without_waiting(cloud: Cloud, stacks: Stacks) -> None:
    stacks.delete(stacks.create(hooked(2)))
    assert cloud.snapshot().instances == ()


def test_a_hook_at_launch_is_refused_and_says_why(stacks: Stacks) -> None:
    name = stacks.create(hooked(1, transition="autoscaling:EC2_INSTANCE_LAUNCHING"))
    assert stacks.describe(name)["StackStatus"] == "ROLLBACK_COMPLETE"
    assert any("carries out lifecycle hooks of" in reason for reason in stacks.reasons(name, "Hook"))


def test_without_a_hook_an_instance_ends_at_once(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    group = stacks.physical(stacks.create(nodes(2)), "Nodes")
    client("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    assert states(cloud) == ["InService"]
