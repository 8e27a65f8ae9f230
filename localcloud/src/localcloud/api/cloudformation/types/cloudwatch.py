"""Resource types of CloudWatch: alarms and dashboards."""

from __future__ import annotations

import json

from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.types.handlers import create_and_update, delete_with, shaped
from localcloud.api.cloudformation.types.resource_type import Context, Physical, Properties, ResourceType

_ALARM = frozenset(
    {
        "AlarmName",
        "AlarmDescription",
        "ActionsEnabled",
        "AlarmActions",
        "OKActions",
        "InsufficientDataActions",
        "MetricName",
        "Namespace",
        "Statistic",
        "Dimensions",
        "Period",
        "EvaluationPeriods",
        "DatapointsToAlarm",
        "Threshold",
        "ComparisonOperator",
        "TreatMissingData",
        "Metrics.Id",
        "Metrics.Expression",
        "Metrics.ReturnData",
        "Metrics.MetricStat.Metric",
        "Metrics.MetricStat.Period",
        "Metrics.MetricStat.Stat",
        "Tags",
    }
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
    """Refuse what PutDashboard refuses before it looks into a widget."""
    try:
        document = json.loads(body)
    except ValueError as error:
        raise ResourceError(f"The field DashboardBody must be a valid JSON object ({error})") from None
    if not isinstance(document, dict) or not isinstance(document.get("widgets"), list):
        raise ResourceError("The dashboard body is invalid: it must be an object with a list of widgets")


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::CloudWatch::Alarm",
        rules={
            "AlarmActions": "scaling policies and topics of the alarm's region",
            "OKActions": "scaling policies and topics of the alarm's region",
            "InsufficientDataActions": "scaling policies and topics of the alarm's region",
            "Metrics.Expression": "can be read, and names ids that are there",
            "Metrics.ReturnData": "true for exactly one",
            "Metrics.MetricStat.Stat": "a statistic, no percentile",
            "Metrics.MetricStat.Period": "one for all metrics",
            "EvaluationPeriods": "a day at most, a week for periods of an hour",
        },
        named_by="AlarmName",
        honoured=_ALARM,
        inert={"Metrics.Label": "a description only"},
        refused={
            "ExtendedStatistic": "percentiles are not computed here",
            "ThresholdMetricId": "there is no anomaly detection here",
            "Metrics.Period": "expressions take the period of their metrics here",
            "Metrics.AccountId": "there is one account here",
        },
        attributes=frozenset({"Arn"}),
        replaced_by=frozenset({"AlarmName"}),
        **create_and_update(_write_alarm, "AlarmName"),
        delete=delete_with("cloudwatch", "delete_alarms", "AlarmNames", gone=("ResourceNotFound",)),
    ),
    ResourceType(
        name="AWS::CloudWatch::Dashboard",
        rules={
            "DashboardBody": "a JSON object with a list of widgets",
        },
        named_by="DashboardName",
        honoured=frozenset({"DashboardName", "DashboardBody"}),
        inert={"Tags": "dashboards are found by name"},
        replaced_by=frozenset({"DashboardName"}),
        **create_and_update(_write_dashboard, "DashboardName"),
        delete=delete_with("cloudwatch", "delete_dashboards", "DashboardNames", gone=("ResourceNotFound",)),
    ),
)
