"""Scaling policies that are carried out: moto keeps steps and ignores them."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from moto.autoscaling.exceptions import AutoscalingClientError
from moto.autoscaling.models import AutoScalingBackend
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult

from localcloud.api.autoscaling import activities
from localcloud.api.monkeypatch import replace

STEP: Final = "StepScaling"
ADJUSTMENTS: Final = ("ExactCapacity", "ChangeInCapacity")


def chosen_step(steps: Sequence[Mapping[str, Any]], beyond: float) -> int | None:
    """Return the adjustment of the step that a value lies in, given as its distance from the threshold.

    A step that ends at the threshold or below it takes its upper bound with it, as AWS's do; None where no step fits.
    """
    for step in steps:
        low = float(step.get("MetricIntervalLowerBound", -math.inf))
        high = float(step.get("MetricIntervalUpperBound", math.inf))
        if low <= beyond < high if high > 0 else low < beyond <= high:
            return int(step["ScalingAdjustment"])
    return None


def new_capacity(adjustment_type: str, adjustment: int, desired: int, low: int, high: int) -> int:
    """Return the size that an adjustment leads to, within the group's bounds."""
    wanted = adjustment if adjustment_type == "ExactCapacity" else desired + adjustment
    return max(low, min(high, wanted))


def execute(policy: Any, beyond: float, cause: str) -> bool:
    """Carry a policy out; return whether the group's size changed."""
    backend = policy.autoscaling_backend
    group = backend.autoscaling_groups.get(policy.auto_scaling_group_name)
    adjustment = chosen_step(policy.step_adjustments, beyond)
    if group is None or adjustment is None or "AlarmNotification" in group._suspended_processes:
        return False
    desired = int(group.desired_capacity or 0)
    wanted = new_capacity(policy.adjustment_type, adjustment, desired, int(group.min_size), int(group.max_size))
    if wanted == desired:
        return False
    with activities.caused_by(group, f"{cause}, changing the desired capacity from {desired} to {wanted}."):
        backend.set_desired_capacity(group.name, wanted)
    return True


def find(backend: Any, arn: str) -> Any:
    """Return the policy of an ARN; None where it is gone."""
    return next((policy for policy in backend.policies.values() if policy.arn == arn), None)


def apply() -> None:
    """Correct moto: policies that are not step scaling are refused by name."""
    original = AutoScalingBackend.put_scaling_policy

    @functools.wraps(original)
    def put_scaling_policy(self: Any, name: str, policy_type: str, *args: Any, **kwargs: Any) -> Any:
        for what, given, known in (
            ("policy type", policy_type, (STEP,)),
            ("adjustment type", kwargs.get("adjustment_type"), ADJUSTMENTS),
        ):
            if given not in known:
                raise AutoscalingClientError(
                    "ValidationError", f"The embedded cloud supports no {what} but {' and '.join(known)}, not {given}."
                )
        if kwargs.get("as_name") not in self.autoscaling_groups:
            raise AutoscalingClientError("ValidationError", "Group not found")
        if not kwargs.get("step_adjustments"):
            raise AutoscalingClientError("ValidationError", "At least one StepAdjustment must be specified")
        return original(self, name, policy_type, *args, **kwargs)

    replace(AutoScalingBackend, "put_scaling_policy", put_scaling_policy)

    original_answer = AutoScalingResponse.put_scaling_policy

    @functools.wraps(original_answer)
    def answer(self: Any) -> ActionResult:
        """Return the policy's ARN, which moto writes under another key than the API's."""
        original_answer(self)
        return ActionResult({"PolicyARN": self.autoscaling_backend.policies[self._get_param("PolicyName")].arn})

    replace(AutoScalingResponse, "put_scaling_policy", answer)

    def execute_policy(self: Any) -> ActionResult:
        """Carry a policy out as ExecutePolicy does: by the step that the given value lies in."""
        backend, name = self.autoscaling_backend, self._get_param("PolicyName")
        policy = find(backend, name) or backend.policies.get(name)
        if policy is None:
            raise AutoscalingClientError("ValidationError", f"Unable to find policy {name}")
        value, threshold = self._get_param("MetricValue"), self._get_param("BreachThreshold")
        if value is None or threshold is None:
            raise AutoscalingClientError("ValidationError", "Step scaling needs MetricValue and BreachThreshold")
        if chosen_step(policy.step_adjustments, float(value) - float(threshold)) is None:
            raise AutoscalingClientError("ValidationError", "There is no step adjustment for the metric value")
        execute(policy, float(value) - float(threshold), f"a user request executed policy {policy.name}")
        return ActionResult({})

    replace(AutoScalingResponse, "execute_policy", execute_policy)
