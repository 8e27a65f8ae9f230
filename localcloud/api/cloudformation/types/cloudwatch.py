"""Resource types that act on metrics: alarms and scaling policies."""

from __future__ import annotations

from typing import Any

from localcloud.api.cloudformation.types.resource_type import Kind, Made, Place, Properties, shaped, unless_gone

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
_STEP = frozenset(
    {
        "PolicyType",
        "AutoScalingGroupName",
        "AdjustmentType",
        "StepAdjustments",
    }
)


def _create_alarm(place: Place, properties: Properties) -> Made:
    return _put_alarm(place, properties, properties.get("AlarmName") or place.name())


def _put_alarm(place: Place, properties: Properties, name: str) -> Made:
    cloudwatch = place.aws.client("cloudwatch")
    values = {key: value for key, value in properties.items() if key in {path.split(".")[0] for path in _ALARM}}
    values["Tags"] = place.tags(properties.get("Tags"))
    cloudwatch.put_metric_alarm(**shaped(cloudwatch, "PutMetricAlarm", {**values, "AlarmName": name}))
    (found,) = cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"]
    return Made(physical_id=name, attributes={"Arn": found["AlarmArn"]})


def _update_alarm(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    del old
    return _put_alarm(place, new, made.physical_id)


def _delete_alarm(place: Place, made: Made, properties: Properties) -> None:
    del properties
    unless_gone(("ResourceNotFound",), place.aws.client("cloudwatch").delete_alarms, AlarmNames=[made.physical_id])


def _create_policy(place: Place, properties: Properties) -> Made:
    return _put_policy(place, properties, place.name())


def _put_policy(place: Place, properties: Properties, name: str) -> Made:
    autoscaling = place.aws.client("autoscaling")
    values: dict[str, Any] = {"PolicyType": "SimpleScaling"}
    values |= {key: value for key, value in properties.items() if key in _STEP}
    arn = autoscaling.put_scaling_policy(**shaped(autoscaling, "PutScalingPolicy", {**values, "PolicyName": name}))
    return Made(physical_id=arn["PolicyARN"], attributes={"Arn": arn["PolicyARN"], "PolicyName": name})


def _update_policy(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    del old
    return _put_policy(place, new, made.attributes["PolicyName"])


def _delete_policy(place: Place, made: Made, properties: Properties) -> None:
    unless_gone(
        ("ValidationError",),
        place.aws.client("autoscaling").delete_policy,
        AutoScalingGroupName=properties["AutoScalingGroupName"],
        PolicyName=made.attributes["PolicyName"],
    )


KINDS = (
    Kind(
        type="AWS::CloudWatch::Alarm",
        carried_out=_ALARM,
        inert={"Metrics.Label": "a text for people"},
        refused={
            "ExtendedStatistic": "percentiles are not computed here",
            "ThresholdMetricId": "there is no anomaly detection here",
            "Metrics.Period": "expressions take the period of their metrics here",
            "Metrics.AccountId": "there is one account here",
        },
        attributes=frozenset({"Arn"}),
        replaced_by=frozenset({"AlarmName"}),
        create=_create_alarm,
        update=_update_alarm,
        delete=_delete_alarm,
    ),
    Kind(
        type="AWS::AutoScaling::ScalingPolicy",
        carried_out=_STEP,
        inert={
            "EstimatedInstanceWarmup": "an instance counts as soon as its host is up",
            "MetricAggregationType": "a step is chosen by the alarm's latest value",
        },
        refused={
            "ScalingAdjustment": "only step scaling is carried out here",
            "Cooldown": "only step scaling is carried out here, which has no cooldown",
            "TargetTrackingConfiguration": "only step scaling is carried out here",
            "PredictiveScalingConfiguration": "only step scaling is carried out here",
        },
        attributes=frozenset({"Arn", "PolicyName"}),
        replaced_by=frozenset({"AutoScalingGroupName"}),
        create=_create_policy,
        update=_update_policy,
        delete=_delete_policy,
    ),
)
