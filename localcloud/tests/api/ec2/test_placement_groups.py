"""Placement groups follow AWS's rules, and instances show their group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from api.templates import Client, Stacks, nodes
from refusals.templates import ref, resource

PLACED = {"Placement": {"GroupName": ref("Near")}}


def placed(count: int, *, zones: int = 1, instance_type: str = "c5.large", strategy: str = "cluster") -> dict[str, Any]:
    resources = nodes(count, data={**PLACED, "InstanceType": instance_type})
    resources["Near"] = resource("EC2::PlacementGroup", Strategy=strategy)
    if zones == 1:
        resources["Nodes"]["Properties"]["VPCZoneIdentifier"] = [ref("A")]
    return resources


@pytest.fixture
def group(client: Client) -> Iterator[str]:
    client("ec2").create_placement_group(GroupName="near", Strategy="cluster")
    yield "near"
    client("ec2").delete_placement_group(GroupName="near")


def code(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


def test_template_places_nodes_in_group_and_deletes_it_with_them(client: Client, stacks: Stacks) -> None:
    ec2 = client("ec2")
    name = stacks.create(placed(2))
    near = stacks.physical(name, "Near")
    (described,) = ec2.describe_placement_groups(GroupNames=[near])["PlacementGroups"]
    assert (described["Strategy"], described["State"]) == ("cluster", "available")
    assert described["GroupArn"].endswith(f":placement-group/{near}")
    assert {"Key": "aws:cloudformation:logical-id", "Value": "Near"} in described["Tags"]
    pages = ec2.describe_instances(Filters=[{"Name": "instance-state-name", "Values": ["running"]}])["Reservations"]
    where = [instance["Placement"] for page in pages for instance in page["Instances"]]
    assert [(each["GroupName"], each["AvailabilityZone"]) for each in where] == [(near, "us-east-1a")] * 2
    with pytest.raises(ClientError) as caught:
        ec2.delete_placement_group(GroupName=near)
    assert code(caught) == "InvalidPlacementGroup.InUse"
    stacks.delete(name)
    with pytest.raises(ClientError) as caught:
        ec2.describe_placement_groups(GroupNames=[near])
    assert code(caught) == "InvalidPlacementGroup.Unknown"


@pytest.mark.parametrize(
    ("resources", "logical", "said"),
    [
        (placed(2, zones=2), "Nodes", "so the launch in us-east-1b is rejected"),
        (placed(1, instance_type="t3.medium"), "Nodes", "not supported by the 't3.medium' instance type"),
        (placed(1, strategy="spread"), "Near", "does not support placement groups with the strategy spread"),
    ],
    ids=["two-zones", "burstable", "spread"],
)
def test_stack_that_violates_rules_fails_with_reason(
    resources: dict[str, Any], logical: str, said: str, stacks: Stacks
) -> None:
    name = stacks.create(resources)
    assert stacks.settle(name) == "ROLLBACK_COMPLETE"
    assert any(said in reason for reason in stacks.reasons(name, logical))


def test_partitions_are_rejected_by_name(stacks: Stacks) -> None:
    resources = placed(1)
    resources["Near"]["Properties"]["PartitionCount"] = 3
    with pytest.raises(ClientError, match=r"does not support the property PartitionCount of AWS::EC2::PlacementGroup"):
        stacks.create(resources)


@pytest.mark.parametrize(
    "asked", [{"GroupIds": ["pg-0123456789abcdef0"]}, {"Filters": [{"Name": "group-name", "Values": ["near"]}]}]
)
def test_groups_are_only_found_by_name(client: Client, asked: dict[str, Any]) -> None:
    with pytest.raises(ClientError, match=f"by name, not by {next(iter(asked))}"):
        client("ec2").describe_placement_groups(**asked)


def test_group_name_must_be_unique(client: Client, group: str) -> None:
    with pytest.raises(ClientError) as caught:
        client("ec2").create_placement_group(GroupName=group, Strategy="cluster")
    assert code(caught) == "InvalidPlacementGroup.Duplicate"


@pytest.mark.parametrize("action", ["describe_placement_groups", "delete_placement_group"])
def test_unknown_group_is_reported(action: str, client: Client) -> None:
    arguments = {"GroupNames": ["far"]} if action.startswith("describe") else {"GroupName": "far"}
    with pytest.raises(ClientError, match="'far' is unknown"):
        getattr(client("ec2"), action)(**arguments)
