"""Requests that Auto Scaling rejects: names, launch templates, topics, metrics, sizes and deletions of groups."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from moto.autoscaling.exceptions import AutoscalingClientError
from moto.autoscaling.models import AutoScalingBackend
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult

from localcloud.api.ec2 import launch_templates
from localcloud.api.monkeypatch import added, around, first

_NAME: Final = re.compile(r"[!-9;-~]+")
"""ASCII 33 to 126 without the colon (API reference of CreateAutoScalingGroup)."""

GROUP_METRICS: Final = (
    "GroupMinSize",
    "GroupMaxSize",
    "GroupDesiredCapacity",
    "GroupInServiceInstances",
    "GroupPendingInstances",
    "GroupStandbyInstances",
    "GroupTerminatingInstances",
    "GroupTotalInstances",
)
"""The group metrics that the embedded cloud measures."""
_STATES: Final = ("InService", "Pending", "Standby", "Terminating", "Total")
_POOL: Final = ("Desired", "Pending", "Terminating", "Warmed", "Total")
PUBLISHED_METRICS: Final = (
    *GROUP_METRICS,
    *(f"Group{state}Capacity" for state in _STATES),
    *(f"WarmPool{state}Capacity" for state in _POOL),
    *(f"GroupAndWarmPool{state}Capacity" for state in ("Desired", "Total")),
)
"""All group metrics of AWS (API reference of EnableMetricsCollection)."""


def invalid(message: str) -> AutoscalingClientError:
    """Return, without raising it, Auto Scaling's error ValidationError with this message."""
    return AutoscalingClientError("ValidationError", message)


@added(AutoScalingResponse, "put_notification_configuration")
def put_notification_configuration(self: Any) -> ActionResult:
    """Accept a topic for a group's notifications, which are never sent. Reject a topic in another region."""
    if str(self._get_param("TopicARN")).split(":")[3:4] != [self.region]:
        raise invalid("Invalid parameter: TopicArn")
    return ActionResult({})


@first(AutoScalingResponse, "enable_metrics_collection")
def _check_metrics(responses: Any) -> None:
    wanted = set(responses._get_param("Metrics") or ())
    if wanted - set(PUBLISHED_METRICS):
        raise invalid(f"Valid metrics collection types are: [{', '.join(PUBLISHED_METRICS)}].")
    if unknown := sorted(wanted - set(GROUP_METRICS)):
        raise invalid(
            f"The embedded cloud does not collect {', '.join(unknown)} of Auto Scaling groups, only "
            f"{', '.join(GROUP_METRICS)}."
        )


@first(AutoScalingResponse, "create_auto_scaling_group")
def _check_creation(responses: Any) -> None:
    name = str(responses._get_param("AutoScalingGroupName"))
    if not _NAME.fullmatch(name):
        raise invalid(
            f"The Auto Scaling group name {name!r} is invalid: it must contain only printable ASCII characters, and no "
            "space or colon."
        )
    if name in responses.autoscaling_backend.autoscaling_groups:
        raise AutoscalingClientError(
            "AlreadyExists",
            f"AutoScalingGroup by this name already exists - A group with the name {name} already exists",
        )
    _check_template(responses)


@first(AutoScalingResponse, "update_auto_scaling_group")
def _check_template(responses: Any) -> None:
    """Reject a group's creation or update if EC2 cannot launch its launch template.

    A request without a launch template is accepted.
    """
    policy = responses._get_param("MixedInstancesPolicy") or {}
    given = responses._get_param("LaunchTemplate") or (policy.get("LaunchTemplate") or {}).get(
        "LaunchTemplateSpecification"
    )
    if not given:
        return
    ec2 = responses.autoscaling_backend.ec2_backend
    try:
        launch_templates.check(ec2, _data(ec2, given))
    except ServiceException as error:
        if error.code == "InvalidQueryParameter":
            raise AutoscalingClientError(error.code, error.message) from None
        raise invalid(
            f"You must use a valid fully-formed launch template. {error.message} (Service: AmazonEC2; Status Code: "
            f"400; Error Code: {error.code})"
        ) from None


def _data(ec2: Any, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the data of the launch template version that a request names. `given` is the request's LaunchTemplate.

    Without a Version, it is the template's default version. Raises EC2's error for an unknown template or version.
    """
    found = (
        ec2.get_launch_template(given["LaunchTemplateId"])
        if given.get("LaunchTemplateId")
        else ec2.get_launch_template_by_name(given["LaunchTemplateName"])
    )
    data: Mapping[str, Any] = found.get_version(given.get("Version") or "$Default").data
    return data


# The check is on the API action, not on the backend's method. A forced deletion calls the method, and may empty a group
# below its MinSize.
@first(AutoScalingResponse, "set_desired_capacity")
def _check_size(responses: Any) -> None:
    group = responses.autoscaling_backend.autoscaling_groups.get(responses._get_param("AutoScalingGroupName"))
    if group is None:
        raise invalid("AutoScalingGroup name not found - null")
    _check_bounds(responses._get_int_param("DesiredCapacity"), group.min_size, group.max_size)


@around(AutoScalingBackend, "update_auto_scaling_group")
def _update_auto_scaling_group(original: Any, self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Update a group if its new sizes are valid. Raises ValidationError otherwise.

    A request without launch template and mixed instances policy does not change the group's policy.
    """
    group = self.autoscaling_groups.get(name)
    if group is not None:
        given = dict(zip(("availability_zones", "desired_capacity", "max_size", "min_size"), args, strict=False))
        _check_new_sizes(group, given | kwargs)
        if not kwargs.get("launch_template") and not kwargs.get("mixed_instances_policy"):
            kwargs["mixed_instances_policy"] = _policy_of_request(group.mixed_instances_policy)
    return original(self, name, *args, **kwargs)


def _check_new_sizes(group: Any, given: Mapping[str, Any]) -> None:
    low, high = (
        present if given.get(key) is None else int(given[key])
        for key, present in (("min_size", group.min_size), ("max_size", group.max_size))
    )
    if low is not None and high is not None and low > high:
        raise invalid(f"Max bound, {high}, must be greater than or equal to min bound, {low}")
    if given.get("desired_capacity") is not None:
        _check_bounds(int(given["desired_capacity"]), low, high)


def _check_bounds(wanted: int, low: int | None, high: int | None) -> None:
    """Raise Auto Scaling's error if a desired size is outside of the group's minimum and maximum. None: no bound."""
    if high is not None and wanted > high:
        raise invalid(f"New SetDesiredCapacity value {wanted} is above max value {high} for the AutoScalingGroup.")
    if low is not None and wanted < low:
        raise invalid(f"New SetDesiredCapacity value {wanted} is below min value {low} for the AutoScalingGroup.")


def _policy_of_request(policy: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a group's mixed instances policy in the form that a request needs; None if the group has no policy.

    A request names the launch template by id or by name, not by both, so the name is removed. moto's update drops the
    policy if the request has none.
    """
    if not policy:
        return policy
    template = policy["LaunchTemplate"]
    named = {
        key: value for key, value in template["LaunchTemplateSpecification"].items() if key != "LaunchTemplateName"
    }
    return {**policy, "LaunchTemplate": {**template, "LaunchTemplateSpecification": named}}


@first(AutoScalingResponse, "delete_auto_scaling_group")
def _empty_before_deletion(responses: Any) -> None:
    """Reject the deletion of a group with instances. If the deletion is forced, terminate them all.

    moto would keep instances that are protected from scale-in.
    """
    backend = responses.autoscaling_backend
    group = backend.autoscaling_groups.get(responses._get_param("AutoScalingGroupName"))
    left = [s.instance.id for s in group.instance_states if s.instance._state.name != "terminated"] if group else []
    if not left:
        return
    if not responses._get_bool_param("ForceDelete", False):
        raise AutoscalingClientError(
            "ResourceInUse",
            "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance request(s) "
            "still in the group.",
        )
    backend.ec2_backend.terminate_instances(left)
    group.instance_states = []
