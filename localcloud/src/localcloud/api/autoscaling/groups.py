"""Auto Scaling groups that maintain their instances and spread them over their subnets.

AWS balances a group over its zones and launches from the group's version of the launch template. When it scales in, its
default policy terminates instances in the fullest zone, with the oldest template version, first. moto launches all
instances into the first subnet, ignores most of the template, terminates the first instances, and accepts any size.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
from collections import Counter
from typing import Any

from moto.autoscaling import models
from moto.core.exceptions import ServiceException
from moto.efs.models import efs_backends

from localcloud.api import failed_calls, service_quotas
from localcloud.api.autoscaling import instance_choice, instance_lifecycle
from localcloud.api.autoscaling.group_rules import invalid
from localcloud.api.ec2 import instances
from localcloud.api.monkeypatch import instead

log = logging.getLogger("localcloud.api")

# A group stops launching after this number of consecutive hosts that could not be started. AWS backs off, and gives up
# after days.
_FAILURES_ALLOWED = 3
# Pause after a failed launch.
_RETRY_S = 5.0
# Quotas of vCPUs are per family and not per zone: another type may fit, another zone does not help.
_TRY_ANOTHER_TYPE = instance_choice.TRY_ANOTHER | service_quotas.EXCEEDED


_template_of_state: Any = models.InstanceState.launch_template
_template_of_group: Any = models.FakeAutoScalingGroup.launch_template


def _launched_from(self: Any) -> Any:
    """Return an instance's launch template with the version that it was launched from.

    moto returns the template's default version instead.
    """
    shown = _template_of_state.fget(self)
    version = getattr(self.instance, "_launched_version", None)
    return {**shown, "Version": version} if shown and version else shown


def _group_template(self: Any) -> Any:
    """Return the group's launch template, or None if a mixed instances policy contains the template."""
    return None if self.mixed_instances_policy else _template_of_group.fget(self)


instead(models.InstanceState, "launch_template")(property(_launched_from))
instead(models.FakeAutoScalingGroup, "launch_template")(property(_group_template))


@instead(models.FakeAutoScalingGroup, "replace_autoscaling_group_instances")
def _launch(self: Any, count_needed: int, propagated_tags: dict[str, str]) -> None:
    """Launch instances, each into the subnet with the fewest instances of the group. Stop when a launch fails.

    If a subnet has no capacity, the next one is tried.
    """
    for _ in range(count_needed):
        if _launch_into(self, _emptiest_first(self), propagated_tags) is None:
            return


def _emptiest_first(group: Any) -> list[str]:
    """Return a group's subnets, sorted by the number of its instances in them, fewest first."""
    subnets = str(group.vpc_zone_identifier or "").split(",")
    load = Counter(state.instance.subnet_id for state in group.active_instances())
    return sorted(subnets, key=lambda subnet: load[subnet])


def _launch_into(group: Any, subnets: list[str], propagated_tags: dict[str, str]) -> Any:
    """Launch an instance into the first subnet with capacity, as a member of the group. Return it, or None on failure.

    After an error other than missing capacity, no further subnet is tried. Each launch is recorded as a scaling
    activity. A failed one delays the group's next launch by 5 s. Raises ValidationError if the group has no launch
    template. While the group is being created, also raises ValidationError if a launch fails for another reason than
    capacity or quotas.
    """
    if group.ec2_launch_template is None:
        raise invalid(f"The embedded cloud only supports groups with a launch template, and {group.name} has none.")
    ec2 = group.autoscaling_backend.ec2_backend
    template = group.ec2_launch_template
    version = template.get_version(group.launch_template_version)
    what = instances.Launch(
        template_id=template.id,
        version=str(version.number),
        # The group's tags override the template's tags with the same key.
        tags={**propagated_tags, models.ASG_NAME_TAG: group.name},
    )
    on_spot = [state.instance.lifecycle == "spot" for state in group.active_instances()]
    choices = list(instance_choice.choices(group.mixed_instances_policy, on_spot))
    for subnet in subnets:
        try:
            instance = _launch_one(ec2, what, subnet, choices)
        except ServiceException as error:
            _report_failed_launch(group, error)
            if error.code not in instance_choice.TRY_ANOTHER:
                return None
            continue
        instance.autoscaling_group = group
        instance._launched_version = str(version.number)
        protected = group.new_instances_protected_from_scale_in
        group.instance_states.append(models.InstanceState(instance, protected_from_scale_in=protected))
        instance_lifecycle.note_launch(group.instance_states[-1])
        instance_lifecycle.record(group, f"Launching a new EC2 instance: {instance.id}")
        return instance
    return None


def launch_extra(group: Any, subnet: str) -> None:
    """Launch an instance into a subnet in addition to a group's desired size, to balance the group's zones.

    Once it runs, `maintain` terminates an instance in the fullest zone. A failed launch is recorded as an activity and
    raises no error.
    """
    with instance_lifecycle.caused_by(
        group, "The group's Availability Zones had become uneven and had to be rebalanced."
    ):
        group._extra = _launch_into(group, [subnet], group.get_propagated_tags())


def _launch_successor(group: Any) -> Any:
    """Launch an additional instance that replaces a spot instance at risk; return it, or None if the launch failed."""
    with instance_lifecycle.caused_by(group, "EC2 had given a rebalance recommendation for an instance of the group."):
        return _launch_into(group, _emptiest_first(group), group.get_propagated_tags())


def _launch_one(ec2: Any, what: instances.Launch, subnet: str, choices: list[instance_choice.Purchase]) -> Any:
    """Launch an instance of the first choice that has capacity, and return it.

    If no choice has capacity, raise the first error in `instance_choice.TRY_ANOTHER`, or else the last error about a
    quota. Any other error is raised immediately. Failed launches leave nothing behind.
    """
    failure: ServiceException | None = None
    for choice in choices:
        # The group continues after this error, so no failed API call cleans up after the launch.
        undo = failed_calls.mark(ec2, efs_backends[ec2.account_id][ec2.region_name])
        try:
            (instance,) = instances.launch(ec2, dataclasses.replace(what, purchase=choice), subnet, 1)
            return instance
        except ServiceException as error:
            undo()
            if error.code not in _TRY_ANOTHER_TYPE:
                raise
            if failure is None or failure.code not in instance_choice.TRY_ANOTHER:
                failure = error
    raise failure or invalid("The group's mixed instances policy has no instance type.")


def _report_failed_launch(group: Any, error: ServiceException) -> None:
    """Record a failed launch as a scaling activity, and delay the group's next launch by 5 s.

    While the group is being created, raise ValidationError instead, unless the error is about capacity or quotas.
    """
    backend = group.autoscaling_backend
    group._retry_at = time.monotonic() + _RETRY_S
    # AWS checks capacity and quotas only after it has created the group.
    if group.name not in backend.autoscaling_groups and error.code not in _TRY_ANOTHER_TYPE:
        raise invalid(error.message) from None
    log.warning("Auto Scaling group %s could not launch an instance: %s", group.name, error)
    failure = f"{str(error.message).rstrip('.')}. Launching EC2 instance failed."
    instance_lifecycle.record(group, "Launching a new EC2 instance", failure=failure)


@instead(models.FakeAutoScalingGroup, "set_desired_capacity")
def _set_desired_capacity(self: Any, new_capacity: int | None) -> None:
    """Set the group's desired size (None: its minimum), and launch or terminate instances to match it."""
    self.desired_capacity = self.min_size if new_capacity is None else int(new_capacity)
    settle(self)


def settle(group: Any) -> None:
    """Remove a group's terminated instances, then launch or terminate instances to match its desired size.

    An instance at risk that has a replacement does not count towards the size. Nothing is launched while the process
    Launch is suspended. Nothing is terminated while an instance that will balance the zones is starting.
    """
    group.instance_states = [state for state in group.instance_states if state.instance._state.name != "terminated"]
    wanted = int(group.desired_capacity or 0) + instance_lifecycle.count_being_replaced(group)
    active = group.active_instances()
    if wanted > len(active) and "Launch" not in group._suspended_processes:
        group.replace_autoscaling_group_instances(wanted - len(active), group.get_propagated_tags())
    elif wanted < len(active) and not _waits_for_extra(group):
        instance_lifecycle.begin_termination(group, _surplus(active, len(active) - wanted))


def _waits_for_extra(group: Any) -> bool:
    """Return whether the instance that will balance a group's zones is still starting."""
    extra = getattr(group, "_extra", None)
    return extra is not None and bool(extra._state.name == "pending")


def _surplus(active: list[Any], count: int) -> list[Any]:
    """Choose `count` instances to terminate, or fewer if the others are protected from scale-in.

    Each choice is in the fullest zone, and has the oldest template version there. Among several, it is the newest
    instance; AWS would choose the one closest to its next billing hour.
    """
    left = list(active)
    order = {id(state): number for number, state in enumerate(active)}
    chosen: list[Any] = []
    while len(chosen) < count:
        candidates = [state for state in left if not state.protected_from_scale_in]
        if not candidates:
            break
        zones = [state.availability_zone for state in left]
        fullest = max(zones.count(state.availability_zone) for state in candidates)
        candidates = [state for state in candidates if zones.count(state.availability_zone) == fullest]
        choice = min(
            candidates, key=lambda state: (int(getattr(state.instance, "_launched_version", 0)), -order[id(state)])
        )
        left.remove(choice)
        chosen.append(choice)
    return chosen


@instead(models.AutoScalingBackend, "terminate_instance")
def _terminate_instance(self: Any, instance_id: str, should_decrement: bool) -> Any:
    """Terminate one instance of a group, and return the activity. A lifecycle hook may delay the termination.

    The group replaces the instance, or with `should_decrement` becomes smaller. Raises ValidationError if no group has
    the instance, or if the group would be smaller than its minimum.
    """
    for group in self.autoscaling_groups.values():
        for state in group.instance_states:
            if state.instance.id == instance_id:
                original_size = group.desired_capacity
                if should_decrement:
                    if original_size - 1 < (group.min_size or 0):
                        raise invalid(
                            f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without "
                            "replacement will violate group's min size constraint. Either set "
                            "shouldDecrementDesiredCapacity flag to false or lower group's min size.",
                        )
                    group.desired_capacity = original_size - 1
                instance_lifecycle.begin_termination(group, [state])
                settle(group)
                return models.TerminateInstanceActivity(state.instance, original_size)
    raise invalid(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")


def maintain(backend: Any) -> bool:
    """Replace missing, unhealthy and at-risk instances in all groups; return whether an instance or its state changed.

    Call it regularly, as AWS runs its health checks. `backend` is moto's Auto Scaling. In a group with suspended health
    checks, only instances with a timed out lifecycle hook are terminated. Nothing is launched in a group after three
    consecutive failed starts, or within 5 s of a failed launch.
    """
    changed = False
    for group in list(backend.autoscaling_groups.values()):
        changed = instance_lifecycle.terminate_due(group) or changed
        if {"HealthCheck", "ReplaceUnhealthy"} & set(group._suspended_processes):
            continue
        before = _states(group)
        failures = getattr(group, "_hosts_failed", 0)
        can_launch = failures < _FAILURES_ALLOWED and time.monotonic() >= getattr(group, "_retry_at", 0.0)
        instance_lifecycle.replace_unhealthy(group, functools.partial(settle, group) if can_launch else lambda: None)
        if can_launch:
            instance_lifecycle.replace_at_risk(group, functools.partial(_launch_successor, group))
            settle(group)
        changed = changed or before != _states(group)
    return changed


def _states(group: Any) -> list[tuple[str, str]]:
    """Return the id and lifecycle state of each instance in a group. The instances' metadata shows this state."""
    return [(state.instance.id, state.lifecycle_state) for state in group.instance_states]


def count_failure(instance: Any, *, has_run: bool) -> None:
    """Count a failed start of a host for the instance's group, if any. If the host has run, set the count to 0 instead.

    `maintain` launches no instances in a group after three consecutive failed starts.
    """
    group = getattr(instance, "autoscaling_group", None)
    if group is not None:
        group._hosts_failed = 0 if has_run else getattr(group, "_hosts_failed", 0) + 1
