"""Alarms and scaling policies of a template are made, changed and removed with it."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from api.templates import Client, Stacks, nodes


def guarded(threshold: float = 0.5) -> dict[str, Any]:
    """Return a group with an alarm that empties it."""
    resources = nodes(1)
    resources["Nodes"]["Properties"]["MetricsCollection"] = [
        {"Granularity": "1Minute", "Metrics": ["GroupInServiceInstances"]}
    ]
    resources["Empty"] = {
        "Type": "AWS::AutoScaling::ScalingPolicy",
        "Properties": {
            "AutoScalingGroupName": {"Ref": "Nodes"},
            "PolicyType": "StepScaling",
            "AdjustmentType": "ExactCapacity",
            "StepAdjustments": [{"MetricIntervalLowerBound": "0", "ScalingAdjustment": "0"}],
        },
    }
    size = {"Namespace": "AWS/AutoScaling", "MetricName": "GroupInServiceInstances"}
    resources["Cap"] = {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {
            "AlarmDescription": "too long",
            "Metrics": [
                {"Id": "e", "Expression": "FILL(size, REPEAT)", "Label": "size"},
                {
                    "Id": "size",
                    "ReturnData": False,
                    "MetricStat": {
                        "Metric": {**size, "Dimensions": [{"Name": "AutoScalingGroupName", "Value": {"Ref": "Nodes"}}]},
                        "Period": 300,
                        "Stat": "Minimum",
                    },
                },
            ],
            "ComparisonOperator": "GreaterThanThreshold",
            "Threshold": threshold,
            "EvaluationPeriods": 12,
            "TreatMissingData": "notBreaching",
            "AlarmActions": [{"Ref": "Empty"}],
        },
    }
    return resources


def test_an_alarm_comes_changes_in_place_and_goes(client: Client, stacks: Stacks) -> None:
    name = stacks.create(guarded())
    group, alarm, policy = (stacks.physical(name, each) for each in ("Nodes", "Cap", "Empty"))
    (found,) = client("cloudwatch").describe_alarms(AlarmNamePrefix=f"{name}-Cap")["MetricAlarms"]
    assert (found["AlarmName"], found["AlarmActions"], found["StateValue"]) == (alarm, [policy], "INSUFFICIENT_DATA")
    (described,) = client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])[
        "AutoScalingGroups"
    ]
    assert [each["Metric"] for each in described["EnabledMetrics"]] == ["GroupInServiceInstances"]
    stacks.update(name, guarded(0.7))
    (changed,) = client("cloudwatch").describe_alarms(AlarmNames=[alarm])["MetricAlarms"]
    assert changed["Threshold"] == 0.7
    stacks.delete(name)
    assert client("cloudwatch").describe_alarms(AlarmNames=[alarm])["MetricAlarms"] == []
    assert client("autoscaling").describe_policies()["ScalingPolicies"] == []


def test_an_alarm_that_is_not_carried_out_fails_its_stack_with_the_reason(stacks: Stacks) -> None:
    resources = guarded()
    resources["Cap"]["Properties"]["Metrics"][0]["Expression"] = "RATE(size)"
    name = stacks.create(resources)
    assert stacks.describe(name)["StackStatus"] == "ROLLBACK_COMPLETE"
    assert any("does not know the function RATE" in reason for reason in stacks.reasons(name, "Cap"))


def test_metrics_of_a_group_that_are_not_measured_fail_its_stack(stacks: Stacks) -> None:
    resources = nodes(0)
    resources["Nodes"]["Properties"]["MetricsCollection"] = [
        {"Granularity": "1Minute", "Metrics": ["WarmPoolTotalCapacity"]}
    ]
    name = stacks.create(resources)
    assert any("does not collect WarmPoolTotalCapacity" in reason for reason in stacks.reasons(name, "Nodes"))


def test_percentiles_are_refused_before_anything_is_made(stacks: Stacks) -> None:
    resources = guarded()
    resources["Cap"]["Properties"]["ExtendedStatistic"] = "p99"
    with pytest.raises(ClientError, match="percentiles are not computed here"):
        stacks.create(resources)
