"""Log groups and dashboards of a stack, as the API shows them."""

from __future__ import annotations

import json
from typing import Any

from api.templates import Client, Stacks


def log_group(**properties: Any) -> dict[str, Any]:
    return {"Group": {"Type": "AWS::Logs::LogGroup", "Properties": properties}}


def dashboard(body: str) -> dict[str, Any]:
    return {"Board": {"Type": "AWS::CloudWatch::Dashboard", "Properties": {"DashboardBody": body}}}


def described(client: Client, name: str) -> dict[str, Any]:
    found = client("logs").describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    return {group["logGroupName"]: group for group in found}


def test_a_log_group_takes_events_and_goes_with_its_stack(client: Client, stacks: Stacks) -> None:
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


def test_a_log_groups_retention_and_tags_change_in_place(client: Client, stacks: Stacks) -> None:
    stack = stacks.create(log_group(RetentionInDays=30, Tags=[{"Key": "team", "Value": "vision"}]))
    name = stacks.physical(stack, "Group")
    client("logs").create_log_stream(logGroupName=name, logStreamName="one")
    stacks.update(stack, log_group(Tags=[{"Key": "cost", "Value": "7"}]))
    assert stacks.physical(stack, "Group") == name
    assert "retentionInDays" not in described(client, name)[name]
    assert client("logs").list_tags_log_group(logGroupName=name)["tags"] == {"cost": "7"}
    assert len(client("logs").describe_log_streams(logGroupName=name)["logStreams"]) == 1


def test_a_log_group_of_a_taken_name_fails_its_stack(client: Client, stacks: Stacks) -> None:
    client("logs").create_log_group(logGroupName="taken")
    stack = stacks.create(log_group(LogGroupName="taken"))
    assert stacks.describe(stack)["StackStatus"] == "ROLLBACK_COMPLETE"
    assert "taken" in described(client, "taken")


def test_a_retained_log_group_outlives_its_stack(client: Client, stacks: Stacks) -> None:
    resources = log_group()
    resources["Group"]["DeletionPolicy"] = "Retain"
    stack = stacks.create(resources)
    name = stacks.physical(stack, "Group")
    stacks.delete(stack)
    assert name in described(client, name)


def test_a_dashboard_is_written_changed_and_removed(client: Client, stacks: Stacks) -> None:
    cloudwatch = client("cloudwatch")
    text = {"type": "text", "x": 0, "y": 0, "width": 6, "height": 2, "properties": {"markdown": "one"}}
    stack = stacks.create(dashboard(json.dumps({"widgets": [text]})))
    name = stacks.physical(stack, "Board")
    assert json.loads(cloudwatch.get_dashboard(DashboardName=name)["DashboardBody"])["widgets"] == [text]
    stacks.update(stack, dashboard(json.dumps({"widgets": []})))
    assert json.loads(cloudwatch.get_dashboard(DashboardName=name)["DashboardBody"])["widgets"] == []
    stacks.delete(stack)
    assert name not in {each["DashboardName"] for each in cloudwatch.list_dashboards()["DashboardEntries"]}


def test_a_dashboard_that_is_no_json_fails_its_stack(stacks: Stacks) -> None:
    for body in ("{", "[]", "{}"):
        assert stacks.describe(stacks.create(dashboard(body)))["StackStatus"] == "ROLLBACK_COMPLETE"
