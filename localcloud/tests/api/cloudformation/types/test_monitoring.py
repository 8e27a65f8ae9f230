"""Alarms, scaling policies, log groups and dashboards of a template."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from api.templates import Client, Stacks, nodes
from refusals.templates import ref, resource


def guarded(threshold: float = 0.5) -> dict[str, Any]:
    """Return an Auto Scaling group with an alarm that scales it to zero."""
    resources = nodes(1)
    resources["Nodes"]["Properties"]["MetricsCollection"] = [
        {"Granularity": "1Minute", "Metrics": ["GroupInServiceInstances"]}
    ]
    resources["Empty"] = resource(
        "AutoScaling::ScalingPolicy",
        AutoScalingGroupName=ref("Nodes"),
        PolicyType="StepScaling",
        AdjustmentType="ExactCapacity",
        StepAdjustments=[{"MetricIntervalLowerBound": "0", "ScalingAdjustment": "0"}],
    )
    size = {"Namespace": "AWS/AutoScaling", "MetricName": "GroupInServiceInstances"}
    resources["Cap"] = resource(
        "CloudWatch::Alarm",
        AlarmDescription="too long",
        Metrics=[
            {"Id": "e", "Expression": "FILL(size, REPEAT)", "Label": "size"},
            {
                "Id": "size",
                "ReturnData": False,
                "MetricStat": {
                    "Metric": {**size, "Dimensions": [{"Name": "AutoScalingGroupName", "Value": ref("Nodes")}]},
                    "Period": 300,
                    "Stat": "Minimum",
                },
            },
        ],
        ComparisonOperator="GreaterThanThreshold",
        Threshold=threshold,
        EvaluationPeriods=12,
        TreatMissingData="notBreaching",
        AlarmActions=[ref("Empty")],
    )
    return resources


def test_alarm_is_created_updated_in_place_and_deleted(client: Client, stacks: Stacks) -> None:
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


def test_percentiles_are_rejected_before_creation(stacks: Stacks) -> None:
    resources = guarded()
    resources["Cap"]["Properties"]["ExtendedStatistic"] = "p99"
    with pytest.raises(ClientError, match="it computes no percentiles"):
        stacks.create(resources)


def log_group(**properties: Any) -> dict[str, Any]:
    return {"Group": resource("Logs::LogGroup", **properties)}


def dashboard(body: str) -> dict[str, Any]:
    return {"Board": resource("CloudWatch::Dashboard", DashboardBody=body)}


def described(client: Client, name: str) -> dict[str, Any]:
    found = client("logs").describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    return {group["logGroupName"]: group for group in found}


def test_log_group_receives_events_and_is_deleted_with_stack(client: Client, stacks: Stacks) -> None:
    stack = stacks.create(log_group(RetentionInDays=30, Tags=[{"Key": "team", "Value": "vision"}]))
    name = stacks.physical(stack, "Group")
    logs = client("logs")
    assert described(client, name)[name]["retentionInDays"] == 30
    assert logs.list_tags_log_group(logGroupName=name)["tags"] == {"team": "vision"}
    logs.create_log_stream(logGroupName=name, logStreamName="one")
    event = {"timestamp": described(client, name)[name]["creationTime"], "message": "ready"}
    logs.put_log_events(logGroupName=name, logStreamName="one", logEvents=[event])
    kept = logs.get_log_events(logGroupName=name, logStreamName="one")["events"]
    assert [each["message"] for each in kept] == ["ready"]

    stacks.delete(stack)
    assert described(client, name) == {}


def test_log_groups_retention_and_tags_change_in_place(client: Client, stacks: Stacks) -> None:
    stack = stacks.create(log_group(RetentionInDays=30, Tags=[{"Key": "team", "Value": "vision"}]))
    name = stacks.physical(stack, "Group")
    client("logs").create_log_stream(logGroupName=name, logStreamName="one")
    stacks.update(stack, log_group(Tags=[{"Key": "cost", "Value": "7"}]))
    assert stacks.physical(stack, "Group") == name
    assert "retentionInDays" not in described(client, name)[name]
    assert client("logs").list_tags_log_group(logGroupName=name)["tags"] == {"cost": "7"}
    assert len(client("logs").describe_log_streams(logGroupName=name)["logStreams"]) == 1


def test_log_group_with_existing_name_fails_its_stack(client: Client, stacks: Stacks) -> None:
    client("logs").create_log_group(logGroupName="taken")
    stack = stacks.create(log_group(LogGroupName="taken"))
    assert stacks.describe(stack)["StackStatus"] == "ROLLBACK_COMPLETE"
    assert "taken" in described(client, "taken")


def test_dashboard_is_written_changed_and_removed(client: Client, stacks: Stacks) -> None:
    cloudwatch = client("cloudwatch")
    text = {"type": "text", "x": 0, "y": 0, "width": 6, "height": 2, "properties": {"markdown": "one"}}
    stack = stacks.create(dashboard(json.dumps({"widgets": [text]})))
    name = stacks.physical(stack, "Board")
    assert json.loads(cloudwatch.get_dashboard(DashboardName=name)["DashboardBody"])["widgets"] == [text]
    stacks.update(stack, dashboard(json.dumps({"widgets": []})))
    assert json.loads(cloudwatch.get_dashboard(DashboardName=name)["DashboardBody"])["widgets"] == []
    stacks.delete(stack)
    assert name not in {each["DashboardName"] for each in cloudwatch.list_dashboards()["DashboardEntries"]}


def test_dashboard_with_invalid_json_fails_its_stack(stacks: Stacks) -> None:
    for body in ("{", "[]", "{}"):
        assert stacks.describe(stacks.create(dashboard(body)))["StackStatus"] == "ROLLBACK_COMPLETE"
