"""Resource types of CloudWatch that only keep and show: log groups and dashboards."""

from __future__ import annotations

import json
from typing import Any

from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.types.resource_type import (
    NOTHING_TO_ENCRYPT,
    Kind,
    Made,
    Place,
    Properties,
    unless_gone,
)


def _create_group(place: Place, properties: Properties) -> Made:
    logs = place.aws.client("logs")
    name = properties.get("LogGroupName") or place.name()
    if _has_group(logs, name):
        raise ResourceError(f"{name} already exists")
    # Only CloudFormation itself may set tags that begin with `aws:`, and moto takes its calls for anybody's.
    logs.create_log_group(logGroupName=name, tags=_tags(place, properties))
    _set_retention(logs, name, properties)
    arn = f"arn:aws:logs:{place.region}:{place.account}:log-group:{name}:*"
    return Made(physical_id=name, attributes={"Arn": arn})


def _has_group(logs: Any, name: str) -> bool:
    found = logs.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    return any(group["logGroupName"] == name for group in found)


def _tags(place: Place, properties: Properties) -> dict[str, str]:
    tags = place.tags(properties.get("Tags"))
    return {tag["Key"]: tag["Value"] for tag in tags if not tag["Key"].startswith("aws:")}


def _set_retention(logs: Any, name: str, properties: Properties) -> None:
    if "RetentionInDays" in properties:
        logs.put_retention_policy(logGroupName=name, retentionInDays=int(properties["RetentionInDays"]))
    else:
        logs.delete_retention_policy(logGroupName=name)


def _update_group(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    logs = place.aws.client("logs")
    _set_retention(logs, made.physical_id, new)
    before, after = _tags(place, old), _tags(place, new)
    gone = sorted(before.keys() - after.keys())
    if gone:
        logs.untag_log_group(logGroupName=made.physical_id, tags=gone)
    if after:
        logs.tag_log_group(logGroupName=made.physical_id, tags=after)
    return made


def _delete_group(place: Place, made: Made, properties: Properties) -> None:
    del properties
    logs = place.aws.client("logs")
    unless_gone(("ResourceNotFoundException",), logs.delete_log_group, logGroupName=made.physical_id)


def _put_dashboard(place: Place, properties: Properties) -> Made:
    return _write_dashboard(place, properties.get("DashboardName") or place.name(), properties)


def _write_dashboard(place: Place, name: str, properties: Properties) -> Made:
    body = properties["DashboardBody"]
    _check_body(body)
    place.aws.client("cloudwatch").put_dashboard(DashboardName=name, DashboardBody=body)
    return Made(physical_id=name)


def _check_body(body: str) -> None:
    """Refuse what PutDashboard refuses before it looks into a widget."""
    try:
        document = json.loads(body)
    except ValueError as error:
        raise ResourceError(f"The field DashboardBody must be a valid JSON object ({error})") from None
    if not isinstance(document, dict) or not isinstance(document.get("widgets"), list):
        raise ResourceError("The dashboard body is invalid: it must be an object with a list of widgets")


def _update_dashboard(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    del old
    return _write_dashboard(place, made.physical_id, new)


def _delete_dashboard(place: Place, made: Made, properties: Properties) -> None:
    del properties
    cloudwatch = place.aws.client("cloudwatch")
    unless_gone(("ResourceNotFound",), cloudwatch.delete_dashboards, DashboardNames=[made.physical_id])


KINDS = (
    Kind(
        type="AWS::Logs::LogGroup",
        carried_out=frozenset({"LogGroupName", "Tags"}),
        inert={
            "RetentionInDays": "it is kept and shown, but no embedded cloud lives for a day",
            "KmsKeyId": NOTHING_TO_ENCRYPT,
        },
        replaced_by=frozenset({"LogGroupName"}),
        attributes=frozenset({"Arn"}),
        create=_create_group,
        update=_update_group,
        delete=_delete_group,
    ),
    Kind(
        type="AWS::CloudWatch::Dashboard",
        carried_out=frozenset({"DashboardName", "DashboardBody"}),
        inert={"Tags": "dashboards are found by name"},
        replaced_by=frozenset({"DashboardName"}),
        create=_put_dashboard,
        update=_update_dashboard,
        delete=_delete_dashboard,
    ),
)
