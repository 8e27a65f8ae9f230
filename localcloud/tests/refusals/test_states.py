"""The cloud rejects what AWS rejects for the state of an account: updates, deletions, exports in use."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from api.templates import Stacks
from refusals.templates import Client, Template, network, only, ref, resource, template


def _reasons(stacks: Stacks, name: str) -> str:
    """Return the events of a stack with their reasons, one per line."""
    return "\n".join(stacks.reasons(name))


def _topic(name: str, **more: Any) -> Template:
    return template(Words=resource("SNS::Topic", TopicName=name, **more))


def _exporting(topic: str, export: str) -> Template:
    return {**_topic(topic), "Outputs": {"One": {"Value": ref("Words"), "Export": {"Name": export}}}}


def _budget(address: str) -> Template:
    who = [{"SubscriptionType": "EMAIL", "Address": address}]
    what = {"NotificationType": "ACTUAL", "ComparisonOperator": "GREATER_THAN", "Threshold": 80}
    limit = {"BudgetLimit": {"Amount": 10, "Unit": "USD"}, "BudgetType": "COST", "TimeUnit": "MONTHLY"}
    return only(
        "Budgets::Budget",
        Budget={"BudgetName": "lab", **limit},
        NotificationsWithSubscribers=[{"Notification": what, "Subscribers": who}],
    )


def test_export_name_is_unique_in_account_and_region(stacks: Stacks) -> None:
    assert stacks.create_named("e1", _exporting("one", "lab-t")) == "CREATE_COMPLETE"
    assert stacks.create_named("e2", _exporting("two", "lab-t")) == "ROLLBACK_COMPLETE"
    refused = "Export with name lab-t is already exported by stack e1. Rollback requested by user."
    assert refused in _reasons(stacks, "e2")
    assert stacks.create_named("e3", _exporting("three", "lab-u")) == "CREATE_COMPLETE"


def test_custom_named_resource_is_not_replaced(stacks: Stacks) -> None:
    def group(name: str, description: str) -> Template:
        found = resource("EC2::SecurityGroup", GroupName=name, GroupDescription=description, VpcId=ref("Vpc"))
        return network(Named=found)

    stacks.create_named("one", group("fixed", "before"))
    assert stacks.update_named("one", group("fixed", "after")) == "UPDATE_ROLLBACK_COMPLETE"
    refused = "CloudFormation cannot update a stack when a custom-named resource requires replacing. "
    assert f"{refused}Rename fixed and update the stack again." in _reasons(stacks, "one")
    assert stacks.update_named("one", group("other", "after")) == "UPDATE_COMPLETE"


def test_subnet_with_an_interface_in_it_is_not_deleted(client: Client, stacks: Stacks) -> None:
    stacks.create_named("one", network())
    subnet = stacks.physical("one", "A")
    interface = client("ec2").create_network_interface(SubnetId=subnet)["NetworkInterface"]["NetworkInterfaceId"]
    assert stacks.delete("one") == "DELETE_FAILED"
    assert f"The subnet '{subnet}' has dependencies and cannot be deleted." in _reasons(stacks, "one")
    client("ec2").delete_network_interface(NetworkInterfaceId=interface)
    assert stacks.delete("one") == "DELETE_COMPLETE"


def _retained() -> Template:
    """Return a network. Its VPC and subnets are retained when the stack is deleted."""
    made = network()
    for name in ("Vpc", "A", "B"):
        made["Resources"][name]["DeletionPolicy"] = "Retain"
    return made


def test_group_of_an_interface_is_not_deleted(client: Client, stacks: Stacks) -> None:
    stacks.create_named("one", _retained())
    vpc, group, *subnets = (stacks.physical("one", name) for name in ("Vpc", "Group", "A", "B"))
    ec2 = client("ec2")
    made = ec2.create_network_interface(SubnetId=subnets[0], Groups=[group])["NetworkInterface"]["NetworkInterfaceId"]
    assert stacks.delete("one") == "DELETE_FAILED"
    assert f"resource {group} has a dependent object" in _reasons(stacks, "one")
    with pytest.raises(ClientError, match="DependencyViolation"):
        ec2.delete_security_group(GroupId=group)
    with pytest.raises(ClientError, match="DependencyViolation"):
        ec2.delete_subnet(SubnetId=subnets[0])
    ec2.delete_network_interface(NetworkInterfaceId=made)
    assert stacks.delete("one") == "DELETE_COMPLETE"
    for subnet in subnets:
        ec2.delete_subnet(SubnetId=subnet)
    ec2.delete_vpc(VpcId=vpc)


def test_group_referenced_by_rule_and_its_vpc_are_not_deleted(client: Client, stacks: Stacks) -> None:
    stacks.create_named("one", network())
    ec2, vpc, group = client("ec2"), stacks.physical("one", "Vpc"), stacks.physical("one", "Group")
    other = ec2.create_security_group(GroupName="other", Description="other", VpcId=vpc)["GroupId"]
    permission = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "UserIdGroupPairs": [{"GroupId": group}]}
    ec2.authorize_security_group_ingress(GroupId=other, IpPermissions=[permission])
    assert stacks.delete("one") == "DELETE_FAILED"
    assert f"resource {group} has a dependent object" in _reasons(stacks, "one")
    ec2.revoke_security_group_ingress(GroupId=other, IpPermissions=[permission])
    assert stacks.delete("one") == "DELETE_FAILED"
    assert f"The vpc '{vpc}' has dependencies and cannot be deleted." in _reasons(stacks, "one")
    ec2.delete_security_group(GroupId=other)
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    assert stacks.delete("one") == "DELETE_FAILED"
    ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    ec2.delete_internet_gateway(InternetGatewayId=gateway)
    assert stacks.delete("one") == "DELETE_COMPLETE"


def test_bucket_with_a_delete_marker_is_not_deleted(client: Client, stacks: Stacks) -> None:
    versioned = {"VersioningConfiguration": {"Status": "Enabled"}}
    stacks.create_named("one", only("S3::Bucket", BucketName="lab-versions", **versioned))
    client("s3").put_object(Bucket="lab-versions", Key="k")
    client("s3").delete_object(Bucket="lab-versions", Key="k")
    assert stacks.delete("one") == "DELETE_FAILED"
    assert "You must delete all versions in the bucket." in _reasons(stacks, "one")
    for each in client("s3").list_object_versions(Bucket="lab-versions")["DeleteMarkers"]:
        client("s3").delete_object(Bucket="lab-versions", Key="k", VersionId=each["VersionId"])
    for each in client("s3").list_object_versions(Bucket="lab-versions")["Versions"]:
        client("s3").delete_object(Bucket="lab-versions", Key="k", VersionId=each["VersionId"])
    assert stacks.delete("one") == "DELETE_COMPLETE"


def test_changed_subscribers_cannot_replace_named_budget(stacks: Stacks) -> None:
    stacks.create_named("one", _budget("a@example.com"))
    assert stacks.update_named("one", _budget("b@example.com")) == "UPDATE_ROLLBACK_COMPLETE"
    assert "Error creating budget: lab - the budget already exists." in _reasons(stacks, "one")


def test_rejected_throughput_does_not_count_as_a_change(stacks: Stacks, client: Client) -> None:
    stacks.create_named("one", only("EFS::FileSystem", ThroughputMode="bursting"))
    efs, id = client("efs"), stacks.physical("one", "It")
    with pytest.raises(ClientError, match="ProvisionedThroughputInMibps must be set with ThroughputMode provisioned"):
        efs.update_file_system(FileSystemId=id, ThroughputMode="provisioned")
    changed = efs.update_file_system(FileSystemId=id, ThroughputMode="provisioned", ProvisionedThroughputInMibps=2)
    assert changed["ProvisionedThroughputInMibps"] == 2
    kept = efs.update_file_system(FileSystemId=id, ThroughputMode="provisioned")
    assert kept["ProvisionedThroughputInMibps"] == 2


def test_throughput_mode_changes_at_most_once_a_day(stacks: Stacks) -> None:
    stacks.create_named("one", only("EFS::FileSystem", ThroughputMode="bursting"))
    assert stacks.update_named("one", only("EFS::FileSystem", ThroughputMode="elastic")) == "UPDATE_COMPLETE"
    back = only("EFS::FileSystem", ThroughputMode="bursting", FileSystemTags=[{"Key": "a", "Value": "b"}])
    assert stacks.update_named("one", back) == "UPDATE_ROLLBACK_COMPLETE"
    assert "HandlerErrorCode: TooManyRequests" in _reasons(stacks, "one")
