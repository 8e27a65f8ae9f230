"""Execution of step scaling policies. moto stores steps but ignores them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from moto.autoscaling.models import AutoScalingBackend
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult

from localcloud.api.autoscaling import instance_lifecycle
from localcloud.api.autoscaling.group_rules import invalid
from localcloud.api.monkeypatch import around, first, instead

STEP: Final = "StepScaling"
ADJUSTMENTS: Final = ("ExactCapacity", "ChangeInCapacity")


def chosen_step(steps: Sequence[Mapping[str, Any]], beyond: float) -> int | None:
    """Return the adjustment of the step that contains a value, or None if no step contains it.

    `steps` are in the form of PutScalingPolicy. `beyond` is the value minus the threshold.

    A step above the threshold includes its lower bound and excludes its upper bound; a step below, the other way round.
    """
    for step in steps:
        low = float(step.get("MetricIntervalLowerBound", -math.inf))
        high = float(step.get("MetricIntervalUpperBound", math.inf))
        if low <= beyond < high if high > 0 else low < beyond <= high:
            return int(step["ScalingAdjustment"])
    return None


def new_capacity(adjustment_type: str, adjustment: int, desired: int, low: int, high: int) -> int:
    """Return a group's size after an adjustment, limited to its minimum `low` and its maximum `high`.

    For ExactCapacity, `adjustment` is the new size. Otherwise it is added to the size `desired`.
    """
    wanted = adjustment if adjustment_type == "ExactCapacity" else desired + adjustment
    return max(low, min(high, wanted))


def execute(policy: Any, beyond: float, cause: str) -> bool:
    """Execute a step scaling policy: launch or terminate instances. Return whether the group's size changed.

    `beyond` is the metric's value minus the threshold. `cause` is the start of the cause in the scaling activities.
    Nothing changes if no step contains `beyond`, or if the group is deleted or its AlarmNotification is suspended.
    """
    backend = policy.autoscaling_backend
    group = backend.autoscaling_groups.get(policy.auto_scaling_group_name)
    adjustment = chosen_step(policy.step_adjustments, beyond)
    if group is None or adjustment is None or "AlarmNotification" in group._suspended_processes:
        return False
    desired = int(group.desired_capacity or 0)
    wanted = new_capacity(policy.adjustment_type, adjustment, desired, int(group.min_size), int(group.max_size))
    if wanted == desired:
        return False
    with instance_lifecycle.caused_by(group, f"{cause}, changing the desired capacity from {desired} to {wanted}."):
        backend.set_desired_capacity(group.name, wanted)
    return True


def find(backend: Any, arn: str) -> Any:
    """Return moto's scaling policy with an ARN, or None if there is none."""
    return next((policy for policy in backend.policies.values() if policy.arn == arn), None)


@first(AutoScalingBackend, "put_scaling_policy")
def _check_policy(backend: Any, name: str, policy_type: str, *_: Any, **given: Any) -> None:
    """Reject a policy that is not step scaling, or has an unsupported adjustment type, an unknown group or no steps."""
    for what, chosen, known in (
        ("policy type", policy_type, (STEP,)),
        ("adjustment type", given.get("adjustment_type"), ADJUSTMENTS),
    ):
        if chosen not in known:
            raise invalid(f"The embedded cloud does not support the {what} {chosen}, only {' and '.join(known)}.")
    if given.get("as_name") not in backend.autoscaling_groups:
        raise invalid("Group not found")
    if not given.get("step_adjustments"):
        raise invalid("At least one StepAdjustment must be specified")


@around(AutoScalingResponse, "put_scaling_policy")
def _put_scaling_policy(original: Any, self: Any) -> ActionResult:
    """Create or update a policy, and answer with its ARN under the API's key. moto uses a different key."""
    original(self)
    return ActionResult({"PolicyARN": self.autoscaling_backend.policies[self._get_param("PolicyName")].arn})


@instead(AutoScalingResponse, "execute_policy")
def _execute_policy(self: Any) -> ActionResult:
    """Execute a policy as ExecutePolicy does, with the step that contains the given value.

    Reject an unknown policy, and a request without a value or a threshold. Also reject a value that is in no step.
    """
    backend, name = self.autoscaling_backend, self._get_param("PolicyName")
    policy = find(backend, name) or backend.policies.get(name)
    if policy is None:
        raise invalid(f"Unable to find policy {name}")
    value, threshold = self._get_param("MetricValue"), self._get_param("BreachThreshold")
    if value is None or threshold is None:
        raise invalid("Step scaling needs MetricValue and BreachThreshold")
    if chosen_step(policy.step_adjustments, float(value) - float(threshold)) is None:
        raise invalid("There is no step adjustment for the metric value")
    execute(policy, float(value) - float(threshold), f"a user request executed policy {policy.name}")
    return ActionResult({})
