"""Change sets, which the CDK CLI uses for deployments."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from api.templates import Client, Stacks, nodes
from refusals.templates import ref, resource


def _propose(client: Client, name: str, resources: dict[str, Any], kind: str = "UPDATE") -> dict[str, Any]:
    cf = client("cloudformation")
    cf.create_change_set(
        StackName=name, ChangeSetName="next", ChangeSetType=kind, TemplateBody=json.dumps({"Resources": resources})
    )
    found: dict[str, Any] = cf.describe_change_set(StackName=name, ChangeSetName="next")
    return found


def _by_name(description: dict[str, Any]) -> dict[str, Any]:
    return {each["ResourceChange"]["LogicalResourceId"]: each["ResourceChange"] for each in description["Changes"]}


def _named(client: Client, stack: str, name: str, resources: dict[str, Any], kind: str = "UPDATE") -> str:
    """Create a change set with this name; return its ARN."""
    made = client("cloudformation").create_change_set(
        StackName=stack, ChangeSetName=name, ChangeSetType=kind, TemplateBody=json.dumps({"Resources": resources})
    )
    return str(made["Id"])


def _code(caught: pytest.ExceptionInfo[ClientError]) -> str:
    return str(caught.value.response["Error"]["Code"])


def test_executed_change_set_is_found_only_by_arn(client: Client, stacks: Stacks) -> None:
    name, cf = stacks.create(nodes(0)), client("cloudformation")
    resources = nodes(0)
    resources["Group"]["Properties"]["GroupDescription"] = "other"
    arn = _named(client, name, "first", resources)
    cf.execute_change_set(ChangeSetName=arn)
    stacks.settle(name)
    assert cf.list_change_sets(StackName=name)["Summaries"] == []
    with pytest.raises(ClientError) as caught:
        cf.describe_change_set(StackName=name, ChangeSetName="first")
    assert _code(caught) == "ChangeSetNotFound"
    found = cf.describe_change_set(ChangeSetName=arn)
    assert (found["Status"], found["ExecutionStatus"]) == ("CREATE_COMPLETE", "EXECUTE_COMPLETE")
    assert stacks.describe(name)["ChangeSetId"] == arn
    with pytest.raises(ClientError, match="current execution status") as caught:
        cf.execute_change_set(ChangeSetName=arn)
    assert _code(caught) == "InvalidChangeSetStatus"


def test_execution_deletes_the_stacks_other_change_sets(client: Client, stacks: Stacks) -> None:
    cf, name = client("cloudformation"), "made-by-one-of-two"
    stacks.names.append(name)
    first = _named(client, name, "first", nodes(0), "CREATE")
    second = _named(client, name, "second", nodes(0), "CREATE")
    assert [each["ChangeSetId"] for each in cf.list_change_sets(StackName=name)["Summaries"]] == [first, second]
    assert {each["ResourceChange"]["Action"] for each in cf.describe_change_set(ChangeSetName=first)["Changes"]} == {
        "Add"
    }
    assert stacks.describe(name)["StackStatus"] == "REVIEW_IN_PROGRESS"
    cf.delete_change_set(StackName=name, ChangeSetName="never-was")
    cf.execute_change_set(ChangeSetName=second)
    for operation in (cf.describe_change_set, cf.execute_change_set):
        with pytest.raises(ClientError) as caught:
            operation(ChangeSetName=first)
        assert _code(caught) == "ChangeSetNotFound"
    stacks.settle(name)
    with pytest.raises(ClientError, match="already exists and cannot be created again"):
        _named(client, name, "third", nodes(0), "CREATE")


def test_direct_update_makes_change_sets_obsolete(client: Client, stacks: Stacks) -> None:
    name, cf = stacks.create(nodes(0)), client("cloudformation")
    resources = nodes(0)
    resources["Group"]["Properties"]["GroupDescription"] = "other"
    arn = _named(client, name, "first", resources)
    resources["Group"]["Properties"]["GroupDescription"] = "yet another"
    stacks.update(name, resources)
    assert cf.describe_change_set(ChangeSetName=arn)["ExecutionStatus"] == "OBSOLETE"
    with pytest.raises(ClientError, match=r"current execution status of \[OBSOLETE\]") as caught:
        cf.execute_change_set(ChangeSetName=arn)
    assert _code(caught) == "InvalidChangeSetStatus"


def test_stack_deletion_deletes_its_change_sets(client: Client, stacks: Stacks) -> None:
    arn = _named(client, "never-made", "first", nodes(0), "CREATE")
    client("cloudformation").delete_stack(StackName="never-made")
    with pytest.raises(ClientError) as caught:
        client("cloudformation").execute_change_set(ChangeSetName=arn)
    assert _code(caught) == "ChangeSetNotFound"


@pytest.mark.parametrize(
    ("name", "code"), [("first", "AlreadyExistsException"), ("1st", "ValidationError"), ("a_b", "ValidationError")]
)
def test_duplicate_or_invalid_change_set_name_is_rejected(client: Client, stacks: Stacks, name: str, code: str) -> None:
    stack = stacks.create(nodes(0))
    _named(client, stack, "first", nodes(1))
    with pytest.raises(ClientError) as caught:
        _named(client, stack, name, nodes(1))
    assert _code(caught) == code


def test_changes_show_replacements_and_dependent_changes(client: Client, stacks: Stacks) -> None:
    resources = nodes(1)
    name = stacks.create(resources)
    resources["Group"]["Properties"]["GroupDescription"] = "other"
    resources["Nodes"]["Properties"]["MaxSize"] = "9"
    del resources["B"]
    resources["Nodes"]["Properties"]["VPCZoneIdentifier"] = [ref("A")]
    found = _propose(client, name, resources)
    changes = {each["ResourceChange"]["LogicalResourceId"]: each["ResourceChange"] for each in found["Changes"]}
    assert set(changes) == {"Group", "Template", "Nodes", "B"}
    assert (changes["Group"]["Replacement"], changes["Group"]["PolicyAction"]) == ("True", "ReplaceAndDelete")
    (follows,) = changes["Template"]["Details"]
    assert (follows["ChangeSource"], follows["CausingEntity"]) == ("ResourceAttribute", "Group.GroupId")
    assert follows["Evaluation"] == "Dynamic"
    assert changes["Nodes"]["Replacement"] == "Conditional", "AWS says so of a group's launch template and subnets"
    recreation = {each["Target"]["Name"]: each["Target"]["RequiresRecreation"] for each in changes["Nodes"]["Details"]}
    assert recreation == {"LaunchTemplate": "Conditionally", "MaxSize": "Never", "VPCZoneIdentifier": "Conditionally"}
    assert {detail.get("CausingEntity") for detail in changes["Nodes"]["Details"]} == {
        None, "Template", "Template.LatestVersionNumber"
    }  # fmt: skip
    assert (changes["B"]["Action"], changes["B"]["PolicyAction"]) == ("Remove", "Delete")


def test_dependent_changes_do_not_depend_on_template_order(client: Client, stacks: Stacks) -> None:
    resources = dict(reversed(nodes(0).items()))
    name = stacks.create(resources)
    resources["Group"]["Properties"]["GroupDescription"] = "other"
    found = [each["ResourceChange"]["LogicalResourceId"] for each in _propose(client, name, resources)["Changes"]]
    assert found == ["Nodes", "Template", "Group"]


def test_reference_to_replaced_resource_replaces_conditionally_and_shows_retention(
    client: Client, stacks: Stacks
) -> None:
    resources = nodes(0)
    resources["Rule"] = resource(
        "EC2::SecurityGroupIngress", GroupId={"Fn::GetAtt": ["Group", "GroupId"]}, IpProtocol="-1", CidrIp="10.0.0.0/8"
    )
    resources["Group"].update(DeletionPolicy="Retain", UpdateReplacePolicy="Retain")
    name = stacks.create(resources)
    resources["Group"]["Properties"]["GroupDescription"] = "other"
    changes = _by_name(_propose(client, name, resources))
    assert changes["Rule"]["Replacement"] == "Conditional"
    assert changes["Group"]["PolicyAction"] == "ReplaceAndRetain"
    for gone in ("Rule", "Nodes", "Template", "Group"):
        del resources[gone]
    client("cloudformation").delete_change_set(StackName=name, ChangeSetName="next")
    assert _by_name(_propose(client, name, resources))["Group"]["PolicyAction"] == "Retain"


def test_changed_parameters_and_changed_policies_are_described_as_such(client: Client, stacks: Stacks) -> None:
    declared = {"Image": {"Type": "String", "Default": "ami-03cf127a"}}
    resources = nodes(0, data={"ImageId": ref("Image")})
    name = stacks.create(resources, Parameters=declared)
    resources["Nodes"]["UpdatePolicy"] = {"AutoScalingScheduledAction": {"IgnoreUnmodifiedGroupSizeProperties": True}}
    resources["Vpc"]["Properties"]["Tags"] = [{"Key": "a", "Value": "b"}]
    cf = client("cloudformation")
    cf.create_change_set(
        StackName=name,
        ChangeSetName="next",
        TemplateBody=json.dumps({"Resources": resources, "Parameters": declared}),
        Parameters=[{"ParameterKey": "Image", "ParameterValue": "ami-12c6146b"}],
    )
    changes = _by_name(cf.describe_change_set(StackName=name, ChangeSetName="next"))
    (image,) = changes["Template"]["Details"]
    assert (image["ChangeSource"], image["CausingEntity"], image["Evaluation"]) == (
        "ParameterReference", "Image", "Static"
    )  # fmt: skip
    assert "UpdatePolicy" in changes["Nodes"]["Scope"]
    assert (changes["Vpc"]["Scope"], changes["Vpc"]["Replacement"]) == (["Tags"], "False")


def test_change_set_without_changes_fails_with_message_expected_by_cli(client: Client, stacks: Stacks) -> None:
    resources = nodes(1)
    name = stacks.create(resources)
    found = _propose(client, name, resources)
    assert (found["Status"], found["ExecutionStatus"]) == ("FAILED", "UNAVAILABLE")
    assert found["StatusReason"].startswith("The submitted information didn't contain changes.")
    with pytest.raises(ClientError, match="cannot be executed in its current status"):
        client("cloudformation").execute_change_set(StackName=name, ChangeSetName="next")


def test_templates_are_fetched_with_either_s3_url_style() -> None:
    from localcloud.api.cloudformation.actions.base import bucket_and_key

    assert bucket_and_key("http://198.18.0.1/assets/a/b.json") == ("assets", "a/b.json")
    assert bucket_and_key("https://s3.us-east-1.amazonaws.com/assets/b.json") == ("assets", "b.json")
    assert bucket_and_key("https://assets.s3.us-east-1.amazonaws.com/b.json") == ("assets", "b.json")


def test_previous_ssm_parameter_is_fetched_again(client: Client, stacks: Stacks) -> None:
    ssm, cf = client("ssm"), client("cloudformation")
    ssm.put_parameter(Name="/image", Type="String", Value="ami-03cf127a")
    declared = {"Image": {"Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", "Default": "/image"}}
    resources = nodes(0, data={"ImageId": ref("Image")})
    name = stacks.create(resources, Parameters=declared)
    ssm.put_parameter(Name="/image", Type="String", Value="ami-12c6146b", Overwrite=True)
    cf.update_stack(
        StackName=name, UsePreviousTemplate=True, Parameters=[{"ParameterKey": "Image", "UsePreviousValue": True}]
    )
    stacks.settle(name)
    assert stacks.describe(name)["Parameters"] == [
        {"ParameterKey": "Image", "ParameterValue": "/image", "ResolvedValue": "ami-12c6146b"}
    ]
    versions = client("ec2").describe_launch_template_versions(LaunchTemplateId=stacks.physical(name, "Template"))
    assert [each["LaunchTemplateData"]["ImageId"] for each in versions["LaunchTemplateVersions"]][-1] == "ami-12c6146b"


def test_imported_export_cannot_be_deleted(client: Client, stacks: Stacks) -> None:
    exporter = stacks.create(nodes(0), Outputs={"Vpc": {"Value": ref("Vpc"), "Export": {"Name": "the-vpc"}}})
    importer = stacks.create(
        {"Group": resource("EC2::SecurityGroup", GroupDescription="x", VpcId={"Fn::ImportValue": "the-vpc"})}
    )
    exports = client("cloudformation").list_exports()["Exports"]
    assert [(each["Name"], each["Value"]) for each in exports] == [("the-vpc", stacks.physical(exporter, "Vpc"))]
    with pytest.raises(ClientError, match=f"in use by {importer}"):
        client("cloudformation").delete_stack(StackName=exporter)
    stacks.delete(importer)
    assert stacks.delete(exporter) == "DELETE_COMPLETE"
