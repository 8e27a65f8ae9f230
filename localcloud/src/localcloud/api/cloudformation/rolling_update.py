"""Rolling updates: replace an Auto Scaling group's instances in batches, according to its UpdatePolicy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from localcloud.api.cloudformation.account import Account
from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.signals import parse_duration, signal_wait
from localcloud.api.cloudformation.stacks import Resource

log = logging.getLogger("localcloud.api")

_GROUP = "AWS::AutoScaling::AutoScalingGroup"
_REPLACING = ("LaunchTemplate", "MixedInstancesPolicy", "VPCZoneIdentifier")


def replaces_instances(declaration: Mapping[str, Any], old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether an update must be followed by `roll`, because a group's instances become obsolete.

    False for other types, and for a group without a rolling update in its UpdatePolicy. `declaration` is the resource's
    new section of the template; `old` and `new` are its resolved properties.
    """
    if declaration["Type"] != _GROUP or "AutoScalingRollingUpdate" not in (declaration.get("UpdatePolicy") or {}):
        return False
    return any(old.get(key) != new.get(key) for key in _REPLACING)


def roll(account: Account, resource: Resource, note: Callable[[str], None], *, wait: bool) -> None:
    """Replace a group's obsolete instances in batches. With `wait`, wait for signals or pause after each batch.

    Batch size, signals and pause are those of the resource's UpdatePolicy. `note` records a message as an event of the
    resource. Raises ResourceError if too many signals of a batch are missing or failed.
    """
    policy = resource.declaration["UpdatePolicy"]["AutoScalingRollingUpdate"]
    signalled = wait and str(policy.get("WaitOnResourceSignals", False)).lower() == "true"
    pause = str(policy.get("PauseTime", "PT5M" if signalled else "PT0S"))
    group = _describe(account, resource.physical_id)
    obsolete = _obsolete(account, group)
    batch_size = max(
        1,
        min(int(policy.get("MaxBatchSize", 1)), group["DesiredCapacity"] - int(policy.get("MinInstancesInService", 0))),
    )
    if not obsolete:
        return
    note(
        f"Rolling update initiated. Terminating {len(obsolete)} obsolete instance(s) in batches of {batch_size}.",
    )
    for start in range(0, len(obsolete), batch_size):
        batch = obsolete[start : start + batch_size]
        with account.condition:
            resource.signals.clear()
        note(
            f"Terminating instance(s) [{','.join(batch)}]; replacing with {len(batch)} new instance(s).",
        )
        for instance_id in batch:
            account.aws.client("autoscaling").terminate_instance_in_auto_scaling_group(
                InstanceId=instance_id, ShouldDecrementDesiredCapacity=False
            )
        if signalled:
            _await(account, resource, len(batch), pause, int(policy.get("MinSuccessfulInstancesPercent", 100)))
        elif wait:
            with account.condition:
                seconds = parse_duration(pause) or 0.0
                if seconds:
                    account.condition.wait_for(lambda: False, timeout=seconds)


def _await(account: Account, resource: Resource, count: int, pause: str, percent: int) -> None:
    """Wait for a batch's signals. Raises ResourceError if too many are missing or failed.

    `pause` is the timeout as an ISO 8601 duration. `percent` of the `count` instances must succeed.
    """
    demand = signal_wait(count, pause, percent)
    with account.condition:
        while (verdict := demand.verdict(resource.signals)) is None:
            account.condition.wait(demand.left_s())
    if verdict:
        raise ResourceError(verdict)


def _describe(account: Account, name: str) -> dict[str, Any]:
    """Return the description of an Auto Scaling group."""
    groups = account.aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])
    found: dict[str, Any] = groups["AutoScalingGroups"][0]
    return found


def _obsolete(account: Account, group: Mapping[str, Any]) -> list[str]:
    """Return the ids of instances with another template version than the group's, or outside of its subnets."""
    if not group["Instances"]:
        return []
    ec2 = account.aws.client("ec2")
    mixed = group.get("MixedInstancesPolicy")
    template = mixed["LaunchTemplate"]["LaunchTemplateSpecification"] if mixed else group["LaunchTemplate"]
    versions = ec2.describe_launch_template_versions(
        LaunchTemplateId=template["LaunchTemplateId"], Versions=[template.get("Version", "$Default")]
    )
    current = str(versions["LaunchTemplateVersions"][0]["VersionNumber"])
    subnets = group["VPCZoneIdentifier"].split(",")
    described = ec2.describe_instances(InstanceIds=[each["InstanceId"] for each in group["Instances"]])
    where = {i["InstanceId"]: i["SubnetId"] for r in described["Reservations"] for i in r["Instances"]}
    return [
        each["InstanceId"]
        for each in group["Instances"]
        if str(each["LaunchTemplate"]["Version"]) != current or where.get(each["InstanceId"]) not in subnets
    ]
