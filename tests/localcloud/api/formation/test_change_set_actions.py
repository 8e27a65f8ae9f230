"""Change sets: what the CDK CLI deploys with."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.localcloud.api.templates import Client, Stacks, nodes


def _propose(client: Client, name: str, resources: dict[str, Any], kind: str = "UPDATE") -> dict[str, Any]:
    cf = client("cloudformation")
    cf.create_change_set(
        StackName=name, ChangeSetName="next", ChangeSetType=kind, TemplateBody=json.dumps({"Resources": resources})
    )
    found: dict[str, Any] = cf.describe_change_set(StackName=name, ChangeSetName="next")
    return found


def test_a_change_set_creates_a_stack(client: Client, stacks: Stacks) -> None:
    stacks.names.append("made-by-change-set")
    found = _propose(client, "made-by-change-set", nodes(1), "CREATE")
    assert {change["ResourceChange"]["Action"] for change in found["Changes"]} == {"Add"}
    cf = client("cloudformation")
    assert stacks.describe("made-by-change-set")["StackStatus"] == "REVIEW_IN_PROGRESS"
    cf.execute_change_set(StackName="made-by-change-set", ChangeSetName="next")
    assert stacks.settle("made-by-change-set") == "CREATE_COMPLETE"
    with pytest.raises(ClientError) as caught:
        cf.describe_change_set(StackName="made-by-change-set", ChangeSetName="next")
    assert caught.value.response["Error"]["Code"] == "ChangeSetNotFound"
    cf.delete_change_set(StackName="made-by-change-set", ChangeSetName="never-was")


def test_changes_tell_what_is_replaced_and_what_follows(client: Client, stacks: Stacks) -> None:
    resources = nodes(1)
    name = stacks.create(resources)
    resources["Group"]["Properties"]["GroupDescription"] = "other"
    resources["Nodes"]["Properties"]["MaxSize"] = "9"
    del resources["B"]
    resources["Nodes"]["Properties"]["VPCZoneIdentifier"] = [{"Ref": "A"}]
    found = _propose(client, name, resources)
    changes = {each["ResourceChange"]["LogicalResourceId"]: each["ResourceChange"] for each in found["Changes"]}
    assert set(changes) == {"Group", "Template", "Nodes", "B"}
    assert changes["Group"]["Replacement"] == "True"
    assert changes["Template"]["Details"][0]["ChangeSource"] == "ResourceReference"
    assert changes["Nodes"]["Replacement"] == "False"
    assert changes["B"]["Action"] == "Remove"


def test_a_change_set_without_changes_fails_with_the_words_that_the_cli_knows(client: Client, stacks: Stacks) -> None:
    resources = nodes(1)
    name = stacks.create(resources)
    found = _propose(client, name, resources)
    assert (found["Status"], found["ExecutionStatus"]) == ("FAILED", "UNAVAILABLE")
    assert found["StatusReason"].startswith("The submitted information didn't contain changes.")
    with pytest.raises(ClientError, match="cannot be executed in its current status"):
        client("cloudformation").execute_change_set(StackName=name, ChangeSetName="next")


def test_templates_are_fetched_from_buckets_by_either_style_of_address() -> None:
    from localcloud.api.formation.actions import bucket_and_key

    assert bucket_and_key("http://198.18.0.1/assets/a/b.json") == ("assets", "a/b.json")
    assert bucket_and_key("https://s3.us-east-1.amazonaws.com/assets/b.json") == ("assets", "b.json")
    assert bucket_and_key("https://assets.s3.us-east-1.amazonaws.com/b.json") == ("assets", "b.json")


def test_a_previous_parameter_of_the_store_is_fetched_anew(client: Client, stacks: Stacks) -> None:
    ssm, cf = client("ssm"), client("cloudformation")
    ssm.put_parameter(Name="/image", Type="String", Value="ami-11111111")
    declared = {"Image": {"Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", "Default": "/image"}}
    resources = nodes(0, data={"ImageId": {"Ref": "Image"}})
    name = stacks.create(resources, Parameters=declared)
    ssm.put_parameter(Name="/image", Type="String", Value="ami-22222222", Overwrite=True)
    cf.update_stack(
        StackName=name,
        UsePreviousTemplate=True,
        Parameters=[{"ParameterKey": "Image", "UsePreviousValue": True}],
    )
    stacks.settle(name)
    assert stacks.describe(name)["Parameters"] == [
        {"ParameterKey": "Image", "ParameterValue": "/image", "ResolvedValue": "ami-22222222"}
    ]
    versions = client("ec2").describe_launch_template_versions(LaunchTemplateId=stacks.physical(name, "Template"))
    assert [each["LaunchTemplateData"]["ImageId"] for each in versions["LaunchTemplateVersions"]][-1] == "ami-22222222"


def test_exports_are_imported_and_guarded(client: Client, stacks: Stacks) -> None:
    exporter = stacks.create(nodes(0), Outputs={"Vpc": {"Value": {"Ref": "Vpc"}, "Export": {"Name": "the-vpc"}}})
    importer = stacks.create(
        {
            "Group": {
                "Type": "AWS::EC2::SecurityGroup",
                "Properties": {"GroupDescription": "x", "VpcId": {"Fn::ImportValue": "the-vpc"}},
            }
        }
    )
    exports = client("cloudformation").list_exports()["Exports"]
    assert [(each["Name"], each["Value"]) for each in exports] == [("the-vpc", stacks.physical(exporter, "Vpc"))]
    with pytest.raises(ClientError, match=f"in use by {importer}"):
        client("cloudformation").delete_stack(StackName=exporter)
