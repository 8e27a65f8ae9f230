"""Properties that violate a schema are rejected before a resource is created, or once their values are known."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from api.templates import Client, Stacks
from localcloud.api.cloud import Cloud
from localcloud.snapshot import Snapshot
from refusals.templates import ref, resource

_PATTERN = "failed validation constraint for keyword [pattern]"


def _log_group(name: Any) -> dict[str, Any]:
    return {"Logs": resource("Logs::LogGroup", LogGroupName=name)}


def _later() -> dict[str, Any]:
    """Return two resources. One has an invalid name, which is known only after the other has been created."""
    name = {"Fn::Join": ["", [{"Fn::GetAtt": ["Words", "TopicName"]}, " and more"]]}
    return {"Words": resource("SNS::Topic"), **_log_group(name)}


def test_invalid_change_set_fails_with_aws_reason_and_details_in_events(client: Client) -> None:
    formation = client("cloudformation")
    where = {"StackName": "early", "ChangeSetName": "one"}
    body = json.dumps({"Resources": _log_group("a b")})
    formation.create_change_set(**where, ChangeSetType="CREATE", TemplateBody=body)
    found = formation.describe_change_set(**where)
    assert (found["Status"], found["ExecutionStatus"]) == ("FAILED", "UNAVAILABLE")
    assert found["StatusReason"] == (
        "The following hook(s)/validation failed: [AWS::EarlyValidation::PropertyValidation]. To troubleshoot Early "
        "Validation errors, use the DescribeEvents API for detailed failure information."
    )
    (event,) = formation.describe_events(**where, Filters={"FailedEvents": True})["OperationEvents"]
    assert (event["EventType"], event["LogicalResourceId"]) == ("VALIDATION_ERROR", "Logs")
    assert event["ValidationPath"] == "/Resources/Logs/Properties/LogGroupName"
    assert event["ValidationStatusReason"] == _PATTERN
    with pytest.raises(ClientError, match="InvalidChangeSetStatus"):
        formation.execute_change_set(**where)
    formation.delete_stack(StackName="early")


def test_only_change_sets_have_events(client: Client) -> None:
    with pytest.raises(ClientError, match="pass ChangeSetName"):
        client("cloudformation").describe_events(StackName="early")


def test_invalid_template_does_not_create_or_change_stack(cloud: Cloud, stacks: Stacks) -> None:
    with pytest.raises(ClientError, match=r"Early validation failed: .*/Resources/Logs/Properties/LogGroupName"):
        stacks.create(_log_group("a b"))
    assert cloud.snapshot() == Snapshot()
    name = stacks.create(_log_group("a-b"))
    with pytest.raises(ClientError, match="Early validation failed"):
        stacks.update(name, _log_group("a c"))
    assert stacks.describe(name)["StackStatus"] == "CREATE_COMPLETE"


def test_parameters_and_conditions_are_resolved_before_creation(stacks: Stacks) -> None:
    chosen = {"Fn::If": ["Odd", ref("Name"), "fine"]}
    parameters = {"Name": {"Type": "String", "Default": "a b"}}
    odd = {"Odd": {"Fn::Equals": ["1", "1"]}}
    with pytest.raises(ClientError, match="Early validation failed"):
        stacks.create(_log_group(chosen), Parameters=parameters, Conditions=odd)
    even = {"Odd": {"Fn::Equals": ["1", "2"]}}
    name = stacks.create(_log_group(chosen), Parameters=parameters, Conditions=even)
    assert stacks.physical(name, "Logs") == "fine"


def test_value_known_only_later_fails_its_resource(stacks: Stacks) -> None:
    name = stacks.create(_later())
    assert stacks.describe(name)["StackStatus"] == "ROLLBACK_COMPLETE"
    refused = f"Properties validation failed for resource Logs with message:\n#/LogGroupName: {_PATTERN}"
    assert f"CREATE_FAILED: {refused}" in stacks.reasons(name, "Logs")
