"""Resource types of the ways out: route tables, routes, elastic addresses, NAT gateways."""

from __future__ import annotations

from typing import Any

from localcloud.api.cloudformation.types.resource_type import (
    Kind,
    Made,
    Place,
    Properties,
    retag,
    retag_only,
    tagged,
    unless_gone,
)


def _create_route_table(place: Place, properties: Properties) -> Made:
    ec2 = place.aws.client("ec2")
    table = ec2.create_route_table(VpcId=properties["VpcId"])["RouteTable"]["RouteTableId"]
    ec2.create_tags(Resources=[table], Tags=place.tags(properties.get("Tags")))
    return Made(physical_id=table, attributes={"RouteTableId": table})


def _delete_route_table(place: Place, made: Made, properties: Properties) -> None:
    del properties
    ec2 = place.aws.client("ec2")
    unless_gone(("InvalidRouteTableID.NotFound",), ec2.delete_route_table, RouteTableId=made.physical_id)


def _associate(place: Place, properties: Properties) -> Made:
    association = place.aws.client("ec2").associate_route_table(
        RouteTableId=properties["RouteTableId"], SubnetId=properties["SubnetId"]
    )["AssociationId"]
    return Made(physical_id=association, attributes={"Id": association})


def _reassociate(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    del old
    association = place.aws.client("ec2").replace_route_table_association(
        AssociationId=made.physical_id, RouteTableId=new["RouteTableId"]
    )["NewAssociationId"]
    return Made(physical_id=association, attributes={"Id": association})


def _disassociate(place: Place, made: Made, properties: Properties) -> None:
    del properties
    ec2 = place.aws.client("ec2")
    unless_gone(("InvalidAssociationID.NotFound",), ec2.disassociate_route_table, AssociationId=made.physical_id)


def _route_target(properties: Properties) -> dict[str, Any]:
    return {key: properties[key] for key in ("GatewayId", "NatGatewayId") if key in properties}


def _create_route(place: Place, properties: Properties) -> Made:
    table, cidr = properties["RouteTableId"], properties["DestinationCidrBlock"]
    place.aws.client("ec2").create_route(RouteTableId=table, DestinationCidrBlock=cidr, **_route_target(properties))
    return Made(physical_id=f"{table}|{cidr}", attributes={"CidrBlock": cidr})


def _replace_route(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    del old
    place.aws.client("ec2").replace_route(
        RouteTableId=new["RouteTableId"], DestinationCidrBlock=new["DestinationCidrBlock"], **_route_target(new)
    )
    return made


def _delete_route(place: Place, made: Made, properties: Properties) -> None:
    del made
    unless_gone(
        ("InvalidRoute.NotFound", "InvalidRouteTableID.NotFound"),
        place.aws.client("ec2").delete_route,
        RouteTableId=properties["RouteTableId"],
        DestinationCidrBlock=properties["DestinationCidrBlock"],
    )


def _create_address(place: Place, properties: Properties) -> Made:
    address = place.aws.client("ec2").allocate_address(
        Domain="vpc", TagSpecifications=tagged("elastic-ip", place, properties)
    )
    attributes = {"AllocationId": address["AllocationId"], "PublicIp": address["PublicIp"]}
    return Made(physical_id=address["PublicIp"], attributes=attributes)


def _retag_address(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    retag(place.aws.client("ec2"), made.attributes["AllocationId"], place, old, new)
    return made


def _release_address(place: Place, made: Made, properties: Properties) -> None:
    del properties
    unless_gone(
        ("InvalidAllocationID.NotFound",),
        place.aws.client("ec2").release_address,
        AllocationId=made.attributes["AllocationId"],
    )


def _create_nat_gateway(place: Place, properties: Properties) -> Made:
    gateway = place.aws.client("ec2").create_nat_gateway(
        SubnetId=properties["SubnetId"],
        AllocationId=properties["AllocationId"],
        TagSpecifications=tagged("natgateway", place, properties),
    )["NatGateway"]["NatGatewayId"]
    return Made(physical_id=gateway, attributes={"NatGatewayId": gateway})


def _delete_nat_gateway(place: Place, made: Made, properties: Properties) -> None:
    del properties
    ec2 = place.aws.client("ec2")
    unless_gone(("NatGatewayNotFound",), ec2.delete_nat_gateway, NatGatewayId=made.physical_id)


KINDS = (
    Kind(
        type="AWS::EC2::RouteTable",
        carried_out=frozenset({"VpcId", "Tags"}),
        replaced_by=frozenset({"VpcId"}),
        attributes=frozenset({"RouteTableId"}),
        create=_create_route_table,
        update=retag_only,
        delete=_delete_route_table,
    ),
    Kind(
        type="AWS::EC2::SubnetRouteTableAssociation",
        carried_out=frozenset({"RouteTableId", "SubnetId"}),
        replaced_by=frozenset({"SubnetId"}),
        attributes=frozenset({"Id"}),
        create=_associate,
        update=_reassociate,
        delete=_disassociate,
    ),
    Kind(
        type="AWS::EC2::Route",
        carried_out=frozenset({"RouteTableId", "DestinationCidrBlock", "GatewayId", "NatGatewayId"}),
        replaced_by=frozenset({"RouteTableId", "DestinationCidrBlock"}),
        attributes=frozenset({"CidrBlock"}),
        create=_create_route,
        update=_replace_route,
        delete=_delete_route,
    ),
    Kind(
        type="AWS::EC2::EIP",
        carried_out=frozenset({"Domain", "Tags"}),
        replaced_by=frozenset({"Domain"}),
        attributes=frozenset({"AllocationId", "PublicIp"}),
        create=_create_address,
        update=_retag_address,
        delete=_release_address,
    ),
    Kind(
        type="AWS::EC2::NatGateway",
        carried_out=frozenset({"SubnetId", "AllocationId", "Tags"}),
        replaced_by=frozenset({"SubnetId", "AllocationId"}),
        attributes=frozenset({"NatGatewayId"}),
        create=_create_nat_gateway,
        update=retag_only,
        delete=_delete_nat_gateway,
    ),
)
