"""The cloud rejects what AWS rejects for the state of an account: updates, deletions, exports in use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from refusals.templates import Client, Template, network, only, ref, resource, template
from waiting import eventually


class Formation:
    """Stacks that a test creates, updates and deletes."""

    def __init__(self, client: Client) -> None:
        self._api = client("cloudformation")
        self.made: list[str] = []

    def create(self, name: str, made: Template) -> str:
        """Create a stack; return its last status."""
        self.made.append(name)
        self._api.create_stack(StackName=name, TemplateBody=json.dumps(made))
        return self._settled(name)

    def update(self, name: str, made: Template) -> str:
        """Update a stack; return its last status."""
        self._api.update_stack(StackName=name, TemplateBody=json.dumps(made))
        return self._settled(name)

    def delete(self, name: str) -> str:
        """Delete a stack; return its last status."""
        found = self._api.describe_stacks(StackName=name)["Stacks"][0]["StackId"]
        self._api.delete_stack(StackName=name)
        return self._settled(found)

    def reasons(self, name: str) -> str:
        """Return the status reasons in a stack's history, one per line."""
        events = self._api.describe_stack_events(StackName=name)["StackEvents"]
        return "\n".join(event.get("ResourceStatusReason", "") for event in events)

    def _settled(self, name: str) -> str:
        def settled() -> str | None:
            status: str = self._api.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"]
            return None if status.endswith("_IN_PROGRESS") else status

        return eventually(settled, 60, f"an end of what stack {name} is doing")


@pytest.fixture
def formation(client: Client) -> Iterator[Formation]:
    """Return a driver of stacks; delete its stacks after the test."""
    formation = Formation(client)
    yield formation
    for name in reversed(formation.made):
        try:
            formation.delete(name)
        except ClientError:
            continue  # the test deleted it


def _topic(name: str, **more: Any) -> Template:
    return template(Words=resource("SNS::Topic", TopicName=name, **more))


def _exporting(topic: str, export: str) -> Template:
    return {**_topic(topic), "Outputs": {"One": {"Value": ref("Words"), "Export": {"Name": export}}}}


def _importing(export: str) -> Template:
    return _topic("importer", DisplayName={"Fn::ImportValue": export})


def _budget(address: str) -> Template:
    who = [{"SubscriptionType": "EMAIL", "Address": address}]
    what = {"NotificationType": "ACTUAL", "ComparisonOperator": "GREATER_THAN", "Threshold": 80}
    limit = {"BudgetLimit": {"Amount": 10, "Unit": "USD"}, "BudgetType": "COST", "TimeUnit": "MONTHLY"}
    return only(
        "Budgets::Budget",
        Budget={"BudgetName": "lab", **limit},
        NotificationsWithSubscribers=[{"Notification": what, "Subscribers": who}],
    )


def test_an_export_has_a_name_once_in_account_and_region(formation: Formation) -> None:
    assert formation.create("e1", _exporting("one", "lab-t")) == "CREATE_COMPLETE"
    assert formation.create("e2", _exporting("two", "lab-t")) == "ROLLBACK_COMPLETE"
    refused = "Export with name lab-t is already exported by stack e1. Rollback requested by user."
    assert refused in formation.reasons("e2")
    assert formation.create("e3", _exporting("three", "lab-u")) == "CREATE_COMPLETE"


def test_an_export_that_is_in_use_is_not_deleted(formation: Formation) -> None:
    formation.create("e1", _exporting("one", "lab-t"))
    formation.create("e3", _importing("lab-t"))
    with pytest.raises(ClientError, match="Cannot delete export lab-t as it is in use by e3"):
        formation.delete("e1")
    assert formation.delete("e3") == "DELETE_COMPLETE"
    assert formation.delete("e1") == "DELETE_COMPLETE"


def test_a_resource_with_a_name_of_its_own_is_not_replaced(formation: Formation) -> None:
    def group(name: str, description: str) -> Template:
        found = resource("EC2::SecurityGroup", GroupName=name, GroupDescription=description, VpcId=ref("Vpc"))
        return network(Named=found)

    formation.create("one", group("fixed", "before"))
    assert formation.update("one", group("fixed", "after")) == "UPDATE_ROLLBACK_COMPLETE"
    refused = "CloudFormation cannot update a stack when a custom-named resource requires replacing. "
    assert f"{refused}Rename fixed and update the stack again." in formation.reasons("one")
    assert formation.update("one", group("other", "after")) == "UPDATE_COMPLETE"


def test_a_stack_that_was_rolled_back_can_only_be_deleted(formation: Formation) -> None:
    parameter = {"Type": "String", "Value": "v"}
    assert formation.create("one", only("SSM::Parameter", Name="lab/x", **parameter)) == "ROLLBACK_COMPLETE"
    with pytest.raises(ClientError, match="is in ROLLBACK_COMPLETE state and can not be updated"):
        formation.update("one", only("SSM::Parameter", Name="/lab/x", **parameter))
    assert formation.delete("one") == "DELETE_COMPLETE"


def test_a_subnet_with_an_interface_in_it_is_not_deleted(client: Client, formation: Formation) -> None:
    formation.create("one", network())
    found = client("cloudformation").describe_stack_resource(StackName="one", LogicalResourceId="A")
    subnet = found["StackResourceDetail"]["PhysicalResourceId"]
    interface = client("ec2").create_network_interface(SubnetId=subnet)["NetworkInterface"]["NetworkInterfaceId"]
    assert formation.delete("one") == "DELETE_FAILED"
    assert f"The subnet '{subnet}' has dependencies and cannot be deleted." in formation.reasons("one")
    client("ec2").delete_network_interface(NetworkInterfaceId=interface)
    assert formation.delete("one") == "DELETE_COMPLETE"


def _id(client: Client, name: str) -> str:
    """Return the physical id of a resource of stack `one`."""
    found = client("cloudformation").describe_stack_resource(StackName="one", LogicalResourceId=name)
    return str(found["StackResourceDetail"]["PhysicalResourceId"])


def _retained() -> Template:
    """Return a network. Its VPC and subnets are retained when the stack is deleted."""
    made = network()
    for name in ("Vpc", "A", "B"):
        made["Resources"][name]["DeletionPolicy"] = "Retain"
    return made


def test_a_group_of_an_interface_is_not_deleted(client: Client, formation: Formation) -> None:
    formation.create("one", _retained())
    vpc, subnets, group = _id(client, "Vpc"), (_id(client, "A"), _id(client, "B")), _id(client, "Group")
    ec2 = client("ec2")
    made = ec2.create_network_interface(SubnetId=subnets[0], Groups=[group])["NetworkInterface"]["NetworkInterfaceId"]
    assert formation.delete("one") == "DELETE_FAILED"
    assert f"resource {group} has a dependent object" in formation.reasons("one")
    with pytest.raises(ClientError, match="DependencyViolation"):
        ec2.delete_security_group(GroupId=group)
    with pytest.raises(ClientError, match="DependencyViolation"):
        ec2.delete_subnet(SubnetId=subnets[0])
    ec2.delete_network_interface(NetworkInterfaceId=made)
    assert formation.delete("one") == "DELETE_COMPLETE"
    for subnet in subnets:
        ec2.delete_subnet(SubnetId=subnet)
    ec2.delete_vpc(VpcId=vpc)


def test_a_group_that_a_rule_of_another_one_names_is_not_deleted_nor_their_vpc(
    client: Client, formation: Formation
) -> None:
    formation.create("one", network())
    ec2, vpc, group = client("ec2"), _id(client, "Vpc"), _id(client, "Group")
    other = ec2.create_security_group(GroupName="other", Description="other", VpcId=vpc)["GroupId"]
    permission = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "UserIdGroupPairs": [{"GroupId": group}]}
    ec2.authorize_security_group_ingress(GroupId=other, IpPermissions=[permission])
    assert formation.delete("one") == "DELETE_FAILED"
    assert f"resource {group} has a dependent object" in formation.reasons("one")
    ec2.revoke_security_group_ingress(GroupId=other, IpPermissions=[permission])
    assert formation.delete("one") == "DELETE_FAILED"
    assert f"The vpc '{vpc}' has dependencies and cannot be deleted." in formation.reasons("one")
    ec2.delete_security_group(GroupId=other)
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    assert formation.delete("one") == "DELETE_FAILED"
    ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    ec2.delete_internet_gateway(InternetGatewayId=gateway)
    assert formation.delete("one") == "DELETE_COMPLETE"


def test_a_bucket_with_a_delete_marker_is_not_deleted(client: Client, formation: Formation) -> None:
    versioned = {"VersioningConfiguration": {"Status": "Enabled"}}
    formation.create("one", only("S3::Bucket", BucketName="lab-versions", **versioned))
    client("s3").put_object(Bucket="lab-versions", Key="k")
    client("s3").delete_object(Bucket="lab-versions", Key="k")
    assert formation.delete("one") == "DELETE_FAILED"
    assert "You must delete all versions in the bucket." in formation.reasons("one")
    for each in client("s3").list_object_versions(Bucket="lab-versions")["DeleteMarkers"]:
        client("s3").delete_object(Bucket="lab-versions", Key="k", VersionId=each["VersionId"])
    for each in client("s3").list_object_versions(Bucket="lab-versions")["Versions"]:
        client("s3").delete_object(Bucket="lab-versions", Key="k", VersionId=each["VersionId"])
    assert formation.delete("one") == "DELETE_COMPLETE"


def test_the_name_of_a_log_group_that_was_retained_is_taken(client: Client, formation: Formation) -> None:
    kept = only("Logs::LogGroup", LogGroupName="lab-log")
    kept["Resources"]["It"]["DeletionPolicy"] = "Retain"
    formation.create("one", kept)
    formation.delete("one")
    assert formation.create("one", kept) == "ROLLBACK_COMPLETE"
    assert "lab-log already exists" in formation.reasons("one")
    client("logs").delete_log_group(logGroupName="lab-log")
    assert formation.create("two", kept) == "CREATE_COMPLETE"


def test_other_subscribers_are_another_budget_which_a_name_of_its_own_forbids(formation: Formation) -> None:
    formation.create("one", _budget("a@example.com"))
    assert formation.update("one", _budget("b@example.com")) == "UPDATE_ROLLBACK_COMPLETE"
    assert "Error creating budget: lab - the budget already exists." in formation.reasons("one")


def test_a_throughput_mode_is_changed_once_in_a_day(formation: Formation) -> None:
    formation.create("one", only("EFS::FileSystem", ThroughputMode="bursting"))
    assert formation.update("one", only("EFS::FileSystem", ThroughputMode="elastic")) == "UPDATE_COMPLETE"
    back = only("EFS::FileSystem", ThroughputMode="bursting", FileSystemTags=[{"Key": "a", "Value": "b"}])
    assert formation.update("one", back) == "UPDATE_ROLLBACK_COMPLETE"
    assert "HandlerErrorCode: TooManyRequests" in formation.reasons("one")
