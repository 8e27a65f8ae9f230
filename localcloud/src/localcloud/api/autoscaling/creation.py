"""What Auto Scaling refuses of a group that is made or changed: its name, its launch template, its topics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from moto.autoscaling.exceptions import AutoscalingClientError
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult

from localcloud.api.cloudwatch import GROUP_METRICS
from localcloud.api.ec2 import launch_templates
from localcloud.api.error_replies import WrongMotoError
from localcloud.api.monkeypatch import check_first

_NAME: Final = re.compile(r"[!-9;-~]+")
"""ASCII 33 to 126 without the colon, of the API reference of CreateAutoScalingGroup."""

_STATES: Final = ("InService", "Pending", "Standby", "Terminating", "Total")
_POOL: Final = ("Desired", "Pending", "Terminating", "Warmed", "Total")
PUBLISHED_METRICS: Final = (
    *GROUP_METRICS,
    *(f"Group{state}Capacity" for state in _STATES),
    *(f"WarmPool{state}Capacity" for state in _POOL),
    *(f"GroupAndWarmPool{state}Capacity" for state in ("Desired", "Total")),
)
"""The metrics of a group, of the API reference of EnableMetricsCollection."""


def apply() -> None:
    """Correct moto."""
    check_first(AutoScalingResponse, "create_auto_scaling_group", _check_creation)
    check_first(AutoScalingResponse, "update_auto_scaling_group", _check_template)
    check_first(AutoScalingResponse, "enable_metrics_collection", _check_metrics)
    name = put_notification_configuration.__name__
    if hasattr(AutoScalingResponse, name):
        raise WrongMotoError(f"with AutoScalingResponse.{name}", "without it")
    setattr(AutoScalingResponse, name, put_notification_configuration)


def put_notification_configuration(self: Any) -> ActionResult:
    """Answer PutNotificationConfiguration, and send nothing: a topic lies in the group's region."""
    if str(self._get_param("TopicARN")).split(":")[3:4] != [self.region]:
        raise AutoscalingClientError("ValidationError", "Invalid parameter: TopicArn")
    return ActionResult({})


def _check_metrics(responses: Any) -> None:
    wanted = set(responses._get_param("Metrics") or ())
    if wanted - set(PUBLISHED_METRICS):
        listed = ", ".join(PUBLISHED_METRICS)
        raise AutoscalingClientError("ValidationError", f"Valid metrics collection types are: [{listed}].")
    if unknown := sorted(wanted - set(GROUP_METRICS)):
        raise AutoscalingClientError(
            "ValidationError", f"The embedded cloud does not collect {', '.join(unknown)} of Auto Scaling groups."
        )


def _check_creation(responses: Any) -> None:
    name = str(responses._get_param("AutoScalingGroupName"))
    if not _NAME.fullmatch(name):
        raise AutoscalingClientError(
            "ValidationError",
            f"The embedded cloud found no text of AWS's: the name {name!r} of an Auto Scaling group has characters "
            "other than ASCII 33 to 126, or a colon.",
        )
    if name in responses.autoscaling_backend.autoscaling_groups:
        raise AutoscalingClientError(
            "AlreadyExists",
            f"AutoScalingGroup by this name already exists - A group with the name {name} already exists",
        )
    _check_template(responses)


def _check_template(responses: Any) -> None:
    """Refuse a launch template that EC2 would not launch."""
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
        raise _refused(error) from None


def _data(ec2: Any, given: Mapping[str, Any]) -> Mapping[str, Any]:
    found = (
        ec2.get_launch_template(given["LaunchTemplateId"])
        if given.get("LaunchTemplateId")
        else ec2.get_launch_template_by_name(given["LaunchTemplateName"])
    )
    data: Mapping[str, Any] = found.get_version(given.get("Version") or "$Default").data
    return data


def _refused(error: ServiceException) -> AutoscalingClientError:
    if error.code == "InvalidQueryParameter":
        return AutoscalingClientError(error.code, error.message)
    return AutoscalingClientError(
        "ValidationError",
        f"You must use a valid fully-formed launch template. {error.message} (Service: AmazonEC2; Status Code: 400; "
        f"Error Code: {error.code})",
    )
