"""How instances leave an Auto Scaling group: at once, or after the time that a terminating lifecycle hook grants.

moto keeps lifecycle hooks and does nothing with them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from moto.autoscaling import models
from moto.autoscaling.exceptions import AutoscalingClientError
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult

from localcloud.api.autoscaling import activities
from localcloud.api.error_replies import WrongMotoError
from localcloud.api.monkeypatch import replace

TERMINATING: Final = "autoscaling:EC2_INSTANCE_TERMINATING"
WAITING: Final = "Terminating:Wait"
_ENDS_AT: Final = "_ends_at"


def apply() -> None:
    """Correct moto."""
    original = models.AutoScalingBackend.create_lifecycle_hook

    def create_lifecycle_hook(
        self: Any, name: str, as_name: str, transition: str, timeout: int | None, result: str
    ) -> Any:
        if transition != TERMINATING:
            raise AutoscalingClientError(
                "ValidationError", f"The embedded cloud carries out lifecycle hooks of {TERMINATING} only."
            )
        return original(self, name, as_name, transition, timeout, result)

    replace(models.AutoScalingBackend, "create_lifecycle_hook", create_lifecycle_hook)
    name = complete_lifecycle_action.__name__
    if hasattr(AutoScalingResponse, name):
        raise WrongMotoError(f"with AutoScalingResponse.{name}", "without it")
    setattr(AutoScalingResponse, name, complete_lifecycle_action)


def complete_lifecycle_action(self: Any) -> ActionResult:
    """Answer CompleteLifecycleAction: the instance waits no longer."""
    name, instance_id = self._get_param("AutoScalingGroupName"), self._get_param("InstanceId")
    group = self.autoscaling_backend.autoscaling_groups.get(name)
    for state in group.instance_states if group else ():
        if state.instance.id == instance_id and state.lifecycle_state == WAITING:
            _terminate(group, [state])
            return ActionResult({})
    raise AutoscalingClientError("ValidationError", f"No active Lifecycle Action found with instance ID {instance_id}")


def end(group: Any, states: Iterable[Any]) -> None:
    """Remove instances from their group, as soon as its lifecycle hooks allow."""
    leaving = [state for state in states if state.lifecycle_state != WAITING]
    hooks = group.autoscaling_backend.describe_lifecycle_hooks(group.name)
    if not hooks:
        _terminate(group, leaving)
        return
    for state in leaving:
        state.lifecycle_state = WAITING
        setattr(state, _ENDS_AT, time.monotonic() + max(int(hook.heartbeat_timeout) for hook in hooks))
        activities.record(
            group, f"Terminating EC2 instance: {state.instance.id} - Waiting For Terminate Lifecycle Action"
        )


def end_due(group: Any) -> bool:
    """Terminate the instances of a group whose time is over; return whether there were any."""
    now = time.monotonic()
    due = [state for state in group.instance_states if getattr(state, _ENDS_AT, now + 1) <= now]
    _terminate(group, due)
    return bool(due)


def target_state(instance: Any) -> str:
    """Return the target lifecycle state in an instance's metadata; empty outside of groups."""
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
        activities.record(group, f"Terminating EC2 instance: {state.instance.id}")
