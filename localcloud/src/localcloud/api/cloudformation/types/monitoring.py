"""Resource types of CloudWatch: alarms, dashboards and log groups."""

from __future__ import annotations

import json
from typing import Any

from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.types.resource_type import (
    NOTHING_TO_ENCRYPT,
    Context,
    Physical,
    Properties,
    ResourceType,
    as_mapping,
    create_and_update,
    delete_with,
    names,
    shaped,
)
from localcloud.snapshot import ACCOUNT, REGION

_ALARM = names(
    "AlarmName AlarmDescription ActionsEnabled AlarmActions OKActions InsufficientDataActions MetricName Namespace "
    "Statistic Dimensions Period EvaluationPeriods DatapointsToAlarm Threshold ComparisonOperator TreatMissingData "
    "Metrics.Id Metrics.Expression Metrics.ReturnData Metrics.MetricStat.Metric Metrics.MetricStat.Period "
    "Metrics.MetricStat.Stat Tags"
)


def _write_alarm(context: Context, name: str, properties: Properties) -> Physical:
    cloudwatch = context.aws.client("cloudwatch")
    values = {key: value for key, value in properties.items() if key in {path.split(".")[0] for path in _ALARM}}
    values["Tags"] = context.tags(properties.get("Tags"))
    cloudwatch.put_metric_alarm(**shaped(cloudwatch, "PutMetricAlarm", {**values, "AlarmName": name}))
    (found,) = cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"]
    return Physical(id=name, attributes={"Arn": found["AlarmArn"]})


def _write_dashboard(context: Context, name: str, properties: Properties) -> Physical:
    body = properties["DashboardBody"]
    _check_body(body)
    context.aws.client("cloudwatch").put_dashboard(DashboardName=name, DashboardBody=body)
    return Physical(id=name)


def _check_body(body: str) -> None:
    """Raise ResourceError if a dashboard's body is not a JSON object with a list of widgets, as PutDashboard does."""
    try:
        document = json.loads(body)
    except ValueError as error:
        raise ResourceError(f"The field DashboardBody must be a valid JSON object ({error})") from None
    if not isinstance(document, dict) or not isinstance(document.get("widgets"), list):
        raise ResourceError("The dashboard body is invalid: it must be an object with a list of widgets")


def _create_group(context: Context, properties: Properties) -> Physical:
    logs = context.aws.client("logs")
    name = properties.get("LogGroupName") or context.name()
    if _has_group(logs, name):
        raise ResourceError(f"{name} already exists")
    tags = as_mapping(context.user_tags(properties.get("Tags")))
    logs.create_log_group(logGroupName=name, **({"tags": tags} if tags else {}))
    arn = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{name}:*"
    physical = Physical(id=name, attributes={"Arn": arn})
    context.report(physical)
    _set_retention(logs, name, properties)
    return physical


def _has_group(logs: Any, name: str) -> bool:
    found = logs.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    return any(group["logGroupName"] == name for group in found)


def _set_retention(logs: Any, name: str, properties: Properties) -> None:
    if "RetentionInDays" in properties:
        logs.put_retention_policy(logGroupName=name, retentionInDays=int(properties["RetentionInDays"]))
    else:
        logs.delete_retention_policy(logGroupName=name)


def _update_group(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    logs = context.aws.client("logs")
    _set_retention(logs, resource.id, new)
    if gone := context.lost_tags(old, new):
        logs.untag_log_group(logGroupName=resource.id, tags=gone)
    if tags := as_mapping(context.user_tags(new.get("Tags"))):
        logs.tag_log_group(logGroupName=resource.id, tags=tags)
    return resource


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::CloudWatch::Alarm",
        named_by="AlarmName",
        honoured=_ALARM,
        inert={"Metrics.Label": "a description only"},
        refused={
            "ExtendedStatistic": "it computes no percentiles",
            "ThresholdMetricId": "it has no anomaly detection",
            "Metrics.Period": "expressions have the period of their metrics",
            "Metrics.AccountId": "it has only one account",
        },
        attributes=names("Arn"),
        replaced_by=names("AlarmName"),
        **create_and_update(_write_alarm, "AlarmName"),
        delete=delete_with("cloudwatch", "delete_alarms", "AlarmNames", gone=("ResourceNotFound",)),
    ),
    ResourceType(
        name="AWS::CloudWatch::Dashboard",
        named_by="DashboardName",
        honoured=names("DashboardName DashboardBody"),
        inert={"Tags": "dashboards are found by name"},
        replaced_by=names("DashboardName"),
        **create_and_update(_write_dashboard, "DashboardName"),
        delete=delete_with("cloudwatch", "delete_dashboards", "DashboardNames", gone=("ResourceNotFound",)),
    ),
    ResourceType(
        name="AWS::Logs::LogGroup",
        named_by="LogGroupName",
        honoured=names("LogGroupName Tags"),
        inert={
            "RetentionInDays": "it is kept and shown, but no embedded cloud lives for a day",
            "KmsKeyId": NOTHING_TO_ENCRYPT,
        },
        replaced_by=names("LogGroupName"),
        attributes=names("Arn"),
        create=_create_group,
        update=_update_group,
        delete=delete_with("logs", "delete_log_group", "logGroupName", gone=("ResourceNotFoundException",)),
    ),
)
