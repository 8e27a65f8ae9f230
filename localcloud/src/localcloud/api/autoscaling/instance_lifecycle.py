"""How instances leave an Auto Scaling group, and the scaling activities of a group.

An instance leaves immediately, or after the timeout of a terminating lifecycle hook. moto only stores hooks. AWS sets a
new size first and launches later: a failed launch is an activity with the status Failed. moto fails the request that
set the size, and has no activities.

Capacity rebalancing (EC2 Auto Scaling user guide, "Capacity Rebalancing in Auto Scaling to replace at-risk Spot
Instances"): after a rebalance recommendation the group launches a replacement. It terminates the instance at risk once
the replacement passes its health checks. Meanwhile the group may exceed its maximum by a tenth of its desired capacity.
The guide does not specify the rounding; it is rounded down here. EC2 gives the recommendation no later than the
interruption notice.

SetInstanceHealth (API reference) marks a member of a group. moto accepts instances that are in no group, ignores
ShouldRespectGracePeriod, and gives a group without HealthCheckGracePeriod 300 s instead of 0. That the call has no
effect during the grace period is an interpretation: the reference says only that it respects the period.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from moto.autoscaling.models import AutoScalingBackend
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult
from moto.core.utils import utcnow

from localcloud.api.autoscaling.group_rules import invalid
from localcloud.api.ec2 import spot_interruption
from localcloud.api.monkeypatch import added, around, first, instead

TERMINATING: Final = "autoscaling:EC2_INSTANCE_TERMINATING"
WAITING: Final = "Terminating:Wait"
_ENDS_AT: Final = "_ends_at"
_SUCCESSOR: Final = "_localcloud_successor"
_UP: Final = ("pending", "running")
_PROCESSES: Final = {"Launch", "Terminate"}
_ACTIVITIES: Final = "_localcloud_activities"
"""Attribute of the backend with each group's activities, by the group's name. It includes deleted groups."""
_LAUNCHED: Final = "_localcloud_launched"
"""Attribute of a member: when its group launched it."""
_STATES: Final = ("Healthy", "Unhealthy")
_UNHEALTHY: Final = "an instance was taken out of service in response to a user health-check."
_REPLACING: Final = "an instance was launched in response to an unhealthy instance needing to be replaced."
_KEPT: Final = 200
"""Maximum number of stored activities of a group. AWS keeps six weeks of them."""


@contextlib.contextmanager
def caused_by(group: Any, cause: str) -> Iterator[None]:
    """Within a block, use `cause` as the cause of the group's new scaling activities."""
    group._cause = cause
    try:
        yield
    finally:
        del group._cause


def record(group: Any, description: str, *, failure: str = "") -> None:
    """Add a scaling activity to a group's activities: failed if there is a `failure` message, otherwise successful.

    Only the latest 200 activities of a group are kept.
    """
    now = utcnow()
    every: dict[str, list[dict[str, Any]]] = group.autoscaling_backend.__dict__.setdefault(_ACTIVITIES, {})
    found = every.setdefault(group.name, [])
    found.append(
        {
            "ActivityId": str(uuid.uuid4()),
            "AutoScalingGroupName": group.name,
            "Description": description if not failure else f"{description}.  Status Reason: {failure}",
            "Cause": group.__dict__.get("_cause")
            or f"At {now:%Y-%m-%dT%H:%M:%SZ} the group had to meet its desired capacity.",
            "StartTime": now,
            "EndTime": now,
            "StatusCode": "Failed" if failure else "Successful",
            "StatusMessage": failure or None,
            "Progress": 100,
        }
    )
    del found[:-_KEPT]


@instead(AutoScalingResponse, "describe_scaling_activities")
def _describe_scaling_activities(self: Any) -> ActionResult:
    wanted, gone_too = self._get_param("AutoScalingGroupName"), self._get_bool_param("IncludeDeletedGroups")
    backend = self.autoscaling_backend
    found = [
        activity
        for name, activities in backend.__dict__.get(_ACTIVITIES, {}).items()
        if (not wanted or name == wanted) and (gone_too or name in backend.autoscaling_groups)
        for activity in reversed(activities)
    ]
    return ActionResult({"Activities": found})


@first(AutoScalingBackend, "create_lifecycle_hook")
def _check_hook(backend: Any, name: str, as_name: str, transition: str, *_: Any, **__: Any) -> None:
    if transition != TERMINATING:
        raise invalid(f"The embedded cloud only supports lifecycle hooks of {TERMINATING}, not of {transition}.")


@added(AutoScalingResponse, "complete_lifecycle_action")
def complete_lifecycle_action(self: Any) -> ActionResult:
    """Complete a lifecycle action: terminate the instance that waits for it. Reject any other instance."""
    name, instance_id = self._get_param("AutoScalingGroupName"), self._get_param("InstanceId")
    group = self.autoscaling_backend.autoscaling_groups.get(name)
    for state in group.instance_states if group else ():
        if state.instance.id == instance_id and state.lifecycle_state == WAITING:
            _terminate(group, [state])
            return ActionResult({})
    raise invalid(f"No active Lifecycle Action found with instance ID {instance_id}")


def begin_termination(group: Any, states: Iterable[Any]) -> None:
    """Terminate instances of a group: immediately, or after the longest timeout of its lifecycle hooks.

    Until then, or until `complete_lifecycle_action`, they are in the state Terminating:Wait; `terminate_due` terminates
    them after the timeout. Instances that already wait are skipped.
    """
    leaving = [state for state in states if state.lifecycle_state != WAITING]
    hooks = group.autoscaling_backend.describe_lifecycle_hooks(group.name)
    if not hooks:
        _terminate(group, leaving)
        return
    for state in leaving:
        state.lifecycle_state = WAITING
        setattr(state, _ENDS_AT, time.monotonic() + max(int(hook.heartbeat_timeout) for hook in hooks))
        record(group, f"Terminating EC2 instance: {state.instance.id} - Waiting For Terminate Lifecycle Action")


def terminate_due(group: Any) -> bool:
    """Terminate a group's instances whose lifecycle hook has timed out; return whether there were any."""
    now = time.monotonic()
    due = [state for state in group.instance_states if getattr(state, _ENDS_AT, now + 1) <= now]
    _terminate(group, due)
    return bool(due)


def note_launch(state: Any) -> None:
    """Record that a group's new member has just been launched. This starts the member's health check grace period."""
    setattr(state, _LAUNCHED, time.monotonic())


@around(AutoScalingBackend, "create_auto_scaling_group")
def _without_grace(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Create a group with a grace period of 0 s if none is given, as the API does."""
    group = original(self, *args, **kwargs)
    if not kwargs.get("health_check_period"):
        group.health_check_grace_period = 0
    return group


@instead(AutoScalingResponse, "set_instance_health")
def _set_instance_health(self: Any) -> ActionResult:
    """Set the health of a group's member.

    Within the group's grace period, Unhealthy has no effect unless ShouldRespectGracePeriod is false. Reject an unknown
    state, and an instance that is in no group.
    """
    instance_id, status = self._get_param("InstanceId"), self._get_param("HealthStatus")
    if status not in _STATES:
        raise invalid(f"Valid instance health states are: [{', '.join(_STATES)}].")
    for group in self.autoscaling_backend.autoscaling_groups.values():
        for state in group.instance_states:
            if state.instance.id != instance_id or state.instance._state.name == "terminated":
                continue
            ignores_grace = self._get_bool_param("ShouldRespectGracePeriod") is False
            grace_s = 0 if ignores_grace else int(group.health_check_grace_period or 0)
            if status == "Healthy" or time.monotonic() - getattr(state, _LAUNCHED, 0.0) >= grace_s:
                state.health_status = status
            return ActionResult({})
    raise invalid(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")


def replace_unhealthy(group: Any, launch: Callable[[], None]) -> None:
    """Terminate a group's members that were marked as unhealthy, and launch replacements.

    `launch` launches the group's missing instances. It is called even if the members still wait for a lifecycle hook,
    but not if no member is unhealthy.
    """
    unhealthy = [state for state in group.active_instances() if state.health_status == "Unhealthy"]
    if not unhealthy:
        return
    with caused_by(group, f"At {utcnow():%Y-%m-%dT%H:%M:%SZ} {_UNHEALTHY}"):
        begin_termination(group, unhealthy)
    with caused_by(group, f"At {utcnow():%Y-%m-%dT%H:%M:%SZ} {_REPLACING}"):
        launch()


def target_state(instance: Any) -> str:
    """Return the target lifecycle state that an instance's metadata shows; "" if the instance is not in a group.

    It is Terminated for an instance that waits for a lifecycle hook, otherwise the instance's current lifecycle state.
    """
    group = getattr(instance, "autoscaling_group", None)
    for state in group.instance_states if group is not None else ():
        if state.instance.id == instance.id:
            return "Terminated" if state.lifecycle_state == WAITING else str(state.lifecycle_state)
    return ""


def _terminate(group: Any, states: list[Any]) -> None:
    if not states:
        return
    group.autoscaling_backend.ec2_backend.terminate_instances([state.instance.id for state in states])
    group.instance_states = [state for state in group.instance_states if state not in states]
    for state in states:
        record(group, f"Terminating EC2 instance: {state.instance.id}")


@around(AutoScalingResponse, "update_auto_scaling_group")
def _update_rebalancing(original: Any, self: Any) -> Any:
    """Update a group's capacity rebalancing, which moto's update ignores."""
    answer = original(self)
    given = self._get_bool_param("CapacityRebalance")
    if given is not None:
        self.autoscaling_backend.autoscaling_groups[self._get_param("AutoScalingGroupName")].capacity_rebalance = given
    return answer


def count_being_replaced(group: Any) -> int:
    """Count the group's instances at risk that are still active although a replacement is starting or running."""
    return sum(_successor(state) is not None for state in group.active_instances())


def replace_at_risk(group: Any, launch: Callable[[], Any]) -> None:
    """Launch replacements for instances at risk, and terminate instances whose replacement runs already.

    Spot instances with a rebalance recommendation are at risk. Do nothing without capacity rebalancing, or if Launch or
    Terminate is suspended. The group may exceed its maximum size by a tenth of its desired capacity. `launch` launches
    one additional instance of the group and returns it, or None if the launch failed.
    """
    if not group.capacity_rebalance or _PROCESSES & set(group._suspended_processes):
        return
    most = int(group.max_size or 0) + int(group.desired_capacity or 0) // 10
    for state in group.active_instances():
        if not spot_interruption.recommended_at(state.instance):
            continue
        successor = _successor(state)
        if successor is not None and successor._state.name == "running":
            begin_termination(group, [state])
        elif successor is None and len(group.active_instances()) < most:
            setattr(state.instance, _SUCCESSOR, launch())


def _successor(state: Any) -> Any:
    """Return an instance's replacement if it is pending or running, otherwise None."""
    successor = getattr(state.instance, _SUCCESSOR, None)
    return successor if successor is not None and successor._state.name in _UP else None
