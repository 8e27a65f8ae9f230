"""What an Auto Scaling group refuses: a size outside its bounds, and to be deleted with instances in it."""

from __future__ import annotations

from typing import Any

from moto.autoscaling import models, responses
from moto.autoscaling.exceptions import AutoscalingClientError

from localcloud.api.monkeypatch import replace


def apply() -> None:
    """Correct moto."""
    _correct_limits()
    _correct_deletion()


def _correct_limits() -> None:
    """Refuse a size outside the group's bounds, as AWS does; moto takes any."""
    original = responses.AutoScalingResponse.set_desired_capacity

    # The action and not the backend's method, by which a forced deletion empties a group below its MinSize.
    def set_desired_capacity(self: Any) -> Any:
        group = self.autoscaling_backend.autoscaling_groups.get(self._get_param("AutoScalingGroupName"))
        if group is None:
            raise AutoscalingClientError("ValidationError", "AutoScalingGroup name not found - null")
        check_bounds(self._get_int_param("DesiredCapacity"), group.min_size, group.max_size)
        return original(self)

    replace(responses.AutoScalingResponse, "set_desired_capacity", set_desired_capacity)
    original_update = models.AutoScalingBackend.update_auto_scaling_group

    def update_auto_scaling_group(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        group = self.autoscaling_groups.get(name)
        named = (
            dict(zip(("availability_zones", "desired_capacity", "max_size", "min_size"), args, strict=False)) | kwargs
        )
        if group is not None:
            low = _given(named.get("min_size"), group.min_size)
            high = _given(named.get("max_size"), group.max_size)
            wanted = named.get("desired_capacity")
            if low is not None and high is not None and low > high:
                raise AutoscalingClientError(
                    "ValidationError", f"Max bound, {high}, must be greater than or equal to min bound, {low}"
                )
            if wanted is not None:
                check_bounds(int(wanted), low, high)
        if group is not None and not kwargs.get("launch_template") and not kwargs.get("mixed_instances_policy"):
            kwargs["mixed_instances_policy"] = _policy_of_request(group.mixed_instances_policy)
        return original_update(self, name, *args, **kwargs)

    replace(models.AutoScalingBackend, "update_auto_scaling_group", update_auto_scaling_group)


def _policy_of_request(policy: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a group's mixed instances policy in the form of a request: moto drops it in an update without one."""
    if not policy:
        return policy
    template = policy["LaunchTemplate"]
    named = {
        key: value for key, value in template["LaunchTemplateSpecification"].items() if key != "LaunchTemplateName"
    }
    return {**policy, "LaunchTemplate": {**template, "LaunchTemplateSpecification": named}}


def _correct_deletion() -> None:
    """Delete a group with all its instances when forced to, and not at all while it has some otherwise.

    moto always deletes, and leaves protected instances running.
    """
    original = responses.AutoScalingResponse.delete_auto_scaling_group

    def delete_auto_scaling_group(self: Any) -> Any:
        group = self.autoscaling_backend.autoscaling_groups.get(self._get_param("AutoScalingGroupName"))
        left = [s.instance.id for s in group.instance_states if s.instance._state.name != "terminated"] if group else []
        if left and not self._get_bool_param("ForceDelete", False):
            raise AutoscalingClientError(
                "ResourceInUse",
                "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance request(s) "
                "still in the group.",
            )
        if left:
            self.autoscaling_backend.ec2_backend.terminate_instances(left)
            group.instance_states = []
        return original(self)

    replace(responses.AutoScalingResponse, "delete_auto_scaling_group", delete_auto_scaling_group)


def _given(value: Any, otherwise: int | None) -> int | None:
    return int(value) if value is not None else otherwise


def check_bounds(wanted: int, low: int | None, high: int | None) -> None:
    """Raise the error of Auto Scaling for a desired capacity out of bounds."""
    if high is not None and wanted > high:
        raise AutoscalingClientError(
            "ValidationError",
            f"New SetDesiredCapacity value {wanted} is above max value {high} for the AutoScalingGroup.",
        )
    if low is not None and wanted < low:
        raise AutoscalingClientError(
            "ValidationError",
            f"New SetDesiredCapacity value {wanted} is below min value {low} for the AutoScalingGroup.",
        )
