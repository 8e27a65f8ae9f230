"""A gateway endpoint has a route in each of its route tables, which is added and removed with the table."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from api.templates import Client, Stacks
from refusals.templates import ref, resource

S3 = "com.amazonaws.us-east-1.s3"


def resources(*tables: str, **properties: Any) -> dict[str, Any]:
    """Return a VPC with two route tables, and an endpoint in the named tables."""
    table = resource("EC2::RouteTable", VpcId=ref("Vpc"))
    given: dict[str, Any] = {"VpcEndpointType": "Gateway", "VpcId": ref("Vpc"), "ServiceName": S3}
    given |= {"RouteTableIds": [ref(name) for name in tables], **properties}
    return {
        "Vpc": resource("EC2::VPC", CidrBlock="10.0.0.0/16"),
        "One": table,
        "Two": table,
        "Endpoint": resource("EC2::VPCEndpoint", **given),
    }


def targets(client: Client, stacks: Stacks, stack: str) -> dict[str, str]:
    """Return the target of each table's route to S3, by the table's name in the template."""
    found: dict[str, str] = {}
    for name in ("One", "Two"):
        (table,) = client("ec2").describe_route_tables(RouteTableIds=[stacks.physical(stack, name)])["RouteTables"]
        routes = [each["GatewayId"] for each in table["Routes"] if "DestinationPrefixListId" in each]
        if routes:
            (found[name],) = routes
    return found


def test_each_route_table_of_endpoint_has_route_to_prefix_list(client: Client, stacks: Stacks) -> None:
    stack = stacks.create(resources("One"))
    endpoint = stacks.physical(stack, "Endpoint")
    assert targets(client, stacks, stack) == {"One": endpoint}
    stacks.update(stack, resources("One", "Two"))
    assert targets(client, stacks, stack) == {"One": endpoint, "Two": endpoint}
    stacks.update(stack, resources("Two"))
    assert targets(client, stacks, stack) == {"Two": endpoint}
    (described,) = client("ec2").describe_vpc_endpoints(VpcEndpointIds=[endpoint])["VpcEndpoints"]
    assert (described["State"], described["RouteTableIds"]) == ("available", [stacks.physical(stack, "Two")])


def test_deleted_endpoint_leaves_no_route_and_is_not_described(client: Client, stacks: Stacks) -> None:
    stack = stacks.create(resources("One"))
    endpoint = stacks.physical(stack, "Endpoint")
    without = {name: item for name, item in resources().items() if name != "Endpoint"}
    stacks.update(stack, without)
    assert targets(client, stacks, stack) == {}
    with pytest.raises(ClientError) as raised:
        client("ec2").describe_vpc_endpoints(VpcEndpointIds=[endpoint])
    assert raised.value.response["Error"]["Code"] == "InvalidVpcEndpointId.NotFound"
    stacks.delete(stack)


def test_second_endpoint_of_a_service_in_a_route_table_is_rejected(client: Client, stacks: Stacks) -> None:
    stack = stacks.create(resources("One"))
    one, two = (stacks.physical(stack, name) for name in ("One", "Two"))
    ec2, vpc = client("ec2"), stacks.physical(stack, "Vpc")
    with pytest.raises(ClientError, match=f"route table {one} already has a route") as raised:
        ec2.create_vpc_endpoint(VpcId=vpc, ServiceName=S3, VpcEndpointType="Gateway", RouteTableIds=[one])
    assert raised.value.response["Error"]["Code"] == "RouteAlreadyExists"
    made = ec2.create_vpc_endpoint(VpcId=vpc, ServiceName=S3, VpcEndpointType="Gateway", RouteTableIds=[two])
    second = made["VpcEndpoint"]["VpcEndpointId"]
    with pytest.raises(ClientError, match="RouteAlreadyExists"):
        ec2.modify_vpc_endpoint(VpcEndpointId=second, AddRouteTableIds=[one])
    assert targets(client, stacks, stack)["Two"] == second
    ec2.delete_vpc_endpoints(VpcEndpointIds=[second])


def test_interface_endpoints_are_rejected_with_reason(stacks: Stacks) -> None:
    with pytest.raises(ClientError, match=r"SubnetIds of AWS::EC2::VPCEndpoint .* all services at one address"):
        stacks.create(resources(VpcEndpointType="Interface", SubnetIds=["subnet-0123456789abcdef0"]))
    stack = stacks.create(resources(VpcEndpointType="Interface"))
    assert any("no VPC endpoints of type Interface" in each for each in stacks.reasons(stack, "Endpoint"))
