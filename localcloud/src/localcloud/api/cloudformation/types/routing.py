"""Resource types of routing: route tables, routes, elastic IP addresses, NAT gateways."""

from __future__ import annotations

from typing import Any

from localcloud.api.cloudformation.types.handlers import delete_with, retag, retag_only, tagged
from localcloud.api.cloudformation.types.resource_type import Context, Physical, Properties, ResourceType


def _create_route_table(context: Context, properties: Properties) -> Physical:
    ec2 = context.aws.client("ec2")
    table = ec2.create_route_table(VpcId=properties["VpcId"])["RouteTable"]["RouteTableId"]
    physical = Physical(id=table, attributes={"RouteTableId": table})
    context.report(physical)
    ec2.create_tags(Resources=[table], Tags=context.tags(properties.get("Tags")))
    return physical


def _associate(context: Context, properties: Properties) -> Physical:
    association = context.aws.client("ec2").associate_route_table(
        RouteTableId=properties["RouteTableId"], SubnetId=properties["SubnetId"]
    )["AssociationId"]
    return Physical(id=association, attributes={"Id": association})


def _reassociate(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    association = context.aws.client("ec2").replace_route_table_association(
        AssociationId=resource.id, RouteTableId=new["RouteTableId"]
    )["NewAssociationId"]
    return Physical(id=association, attributes={"Id": association})


def _route_target(properties: Properties) -> dict[str, Any]:
    return {key: properties[key] for key in ("GatewayId", "NatGatewayId") if key in properties}


def _create_route(context: Context, properties: Properties) -> Physical:
    table, cidr = properties["RouteTableId"], properties["DestinationCidrBlock"]
    context.aws.client("ec2").create_route(RouteTableId=table, DestinationCidrBlock=cidr, **_route_target(properties))
    return Physical(id=f"{table}|{cidr}", attributes={"CidrBlock": cidr})


def _replace_route(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    context.aws.client("ec2").replace_route(
        RouteTableId=new["RouteTableId"], DestinationCidrBlock=new["DestinationCidrBlock"], **_route_target(new)
    )
    return resource


def _create_address(context: Context, properties: Properties) -> Physical:
    address = context.aws.client("ec2").allocate_address(
        Domain="vpc", TagSpecifications=tagged("elastic-ip", context, properties)
    )
    attributes = {"AllocationId": address["AllocationId"], "PublicIp": address["PublicIp"]}
    return Physical(id=address["PublicIp"], attributes=attributes)


def _retag_address(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    retag(context.aws.client("ec2"), resource.attributes["AllocationId"], context, old, new)
    return resource


def _create_nat_gateway(context: Context, properties: Properties) -> Physical:
    gateway = context.aws.client("ec2").create_nat_gateway(
        SubnetId=properties["SubnetId"],
        AllocationId=properties["AllocationId"],
        TagSpecifications=tagged("natgateway", context, properties),
    )["NatGateway"]["NatGatewayId"]
    return Physical(id=gateway, attributes={"NatGatewayId": gateway})


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::EC2::RouteTable",
        honoured=frozenset({"VpcId", "Tags"}),
        replaced_by=frozenset({"VpcId"}),
        attributes=frozenset({"RouteTableId"}),
        create=_create_route_table,
        update=retag_only,
        delete=delete_with("ec2", "delete_route_table", "RouteTableId", gone=("InvalidRouteTableID.NotFound",)),
    ),
    ResourceType(
        name="AWS::EC2::SubnetRouteTableAssociation",
        honoured=frozenset({"RouteTableId", "SubnetId"}),
        replaced_by=frozenset({"SubnetId"}),
        attributes=frozenset({"Id"}),
        create=_associate,
        update=_reassociate,
        delete=delete_with("ec2", "disassociate_route_table", "AssociationId", gone=("InvalidAssociationID.NotFound",)),
    ),
    ResourceType(
        name="AWS::EC2::Route",
        rules={
            "DestinationCidrBlock": "once in a table",
        },
        honoured=frozenset({"RouteTableId", "DestinationCidrBlock", "GatewayId", "NatGatewayId"}),
        replaced_by=frozenset({"RouteTableId", "DestinationCidrBlock"}),
        attributes=frozenset({"CidrBlock"}),
        create=_create_route,
        update=_replace_route,
        delete=delete_with(
            "ec2",
            "delete_route",
            None,
            "RouteTableId",
            "DestinationCidrBlock",
            gone=("InvalidRoute.NotFound", "InvalidRouteTableID.NotFound"),
        ),
    ),
    ResourceType(
        name="AWS::EC2::EIP",
        honoured=frozenset({"Domain", "Tags"}),
        replaced_by=frozenset({"Domain"}),
        attributes=frozenset({"AllocationId", "PublicIp"}),
        create=_create_address,
        update=_retag_address,
        delete=delete_with("ec2", "release_address", None, "AllocationId", gone=("InvalidAllocationID.NotFound",)),
    ),
    ResourceType(
        name="AWS::EC2::NatGateway",
        rules={
            "AllocationId": "exists",
        },
        honoured=frozenset({"SubnetId", "AllocationId", "Tags"}),
        replaced_by=frozenset({"SubnetId", "AllocationId"}),
        attributes=frozenset({"NatGatewayId"}),
        create=_create_nat_gateway,
        update=retag_only,
        delete=delete_with("ec2", "delete_nat_gateway", "NatGatewayId", gone=("NatGatewayNotFound",)),
    ),
)
