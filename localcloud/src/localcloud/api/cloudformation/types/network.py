"""Resource types of networks: VPCs, subnets, gateways, routes, addresses and endpoints."""

from __future__ import annotations

from typing import Any, Final

from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.types.resource_type import (
    Context,
    Physical,
    Properties,
    ResourceType,
    delete_with,
    names,
    retag,
    retag_only,
    tagged,
    truth,
)

_VPC_FLAGS = ("EnableDnsSupport", "EnableDnsHostnames")


def _create_vpc(context: Context, properties: Properties) -> Physical:
    ec2 = context.aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock=properties["CidrBlock"])["Vpc"]
    vpc_id = vpc["VpcId"]
    context.report(Physical(id=vpc_id))
    ec2.create_tags(Resources=[vpc_id], Tags=context.tags(properties.get("Tags")))
    _set_vpc_flags(ec2, vpc_id, properties)
    groups = ec2.describe_security_groups(
        Filters=[{"Name": "vpc-id", "Values": [vpc_id]}, {"Name": "group-name", "Values": ["default"]}]
    )["SecurityGroups"]
    attributes = {"VpcId": vpc_id, "CidrBlock": vpc["CidrBlock"], "DefaultSecurityGroup": groups[0]["GroupId"]}
    return Physical(id=vpc_id, attributes=attributes)


def _set_vpc_flags(ec2: Any, vpc_id: str, properties: Properties) -> None:
    for flag in _VPC_FLAGS:
        if flag in properties:
            ec2.modify_vpc_attribute(VpcId=vpc_id, **{flag: {"Value": truth(properties[flag])}})


def _update_vpc(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    ec2 = context.aws.client("ec2")
    _set_vpc_flags(ec2, resource.id, new)
    retag(ec2, resource.id, context, old, new)
    return resource


def _create_internet_gateway(context: Context, properties: Properties) -> Physical:
    created = context.aws.client("ec2").create_internet_gateway(
        TagSpecifications=tagged("internet-gateway", context, properties)
    )["InternetGateway"]
    return Physical(id=created["InternetGatewayId"], attributes={"InternetGatewayId": created["InternetGatewayId"]})


def _attach_gateway(context: Context, properties: Properties) -> Physical:
    context.aws.client("ec2").attach_internet_gateway(
        InternetGatewayId=properties["InternetGatewayId"], VpcId=properties["VpcId"]
    )
    return Physical(id=f"IGW|{properties['VpcId']}", attributes={"AttachmentType": "IGW"})


def _create_subnet(context: Context, properties: Properties) -> Physical:
    ec2 = context.aws.client("ec2")
    zone = {"AvailabilityZone": properties["AvailabilityZone"]} if "AvailabilityZone" in properties else {}
    subnet = ec2.create_subnet(
        VpcId=properties["VpcId"],
        CidrBlock=properties["CidrBlock"],
        TagSpecifications=tagged("subnet", context, properties),
        **zone,
    )["Subnet"]
    attributes = {key: subnet[key] for key in ("SubnetId", "VpcId", "CidrBlock", "AvailabilityZone")}
    physical = Physical(id=subnet["SubnetId"], attributes=attributes)
    context.report(physical)
    _map_public(ec2, physical.id, properties)
    return physical


def _map_public(ec2: Any, subnet_id: str, properties: Properties) -> None:
    wanted = truth(properties.get("MapPublicIpOnLaunch", False))
    ec2.modify_subnet_attribute(SubnetId=subnet_id, MapPublicIpOnLaunch={"Value": wanted})


def _update_subnet(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    ec2 = context.aws.client("ec2")
    _map_public(ec2, resource.id, new)
    retag(ec2, resource.id, context, old, new)
    return resource


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


_NO_INTERFACES: Final = "its hosts reach all services at one address"
_NO_PACKETS: Final = "its routes are in the tables, and no packet takes them, because S3 has the API's one address"


def _create_endpoint(context: Context, properties: Properties) -> Physical:
    kind = properties.get("VpcEndpointType", "Gateway")
    if kind != "Gateway":
        raise ResourceError(f"the embedded cloud has no VPC endpoints of type {kind}, because {_NO_INTERFACES}")
    endpoint = context.aws.client("ec2").create_vpc_endpoint(
        VpcEndpointType=kind,
        VpcId=properties["VpcId"],
        ServiceName=properties["ServiceName"],
        RouteTableIds=properties.get("RouteTableIds", []),
        TagSpecifications=tagged("vpc-endpoint", context, properties),
    )["VpcEndpoint"]["VpcEndpointId"]
    return Physical(id=endpoint, attributes={"Id": endpoint})


def _update_endpoint(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    ec2 = context.aws.client("ec2")
    before, after = (set(each.get("RouteTableIds", ())) for each in (old, new))
    changes: dict[str, Any] = {
        "AddRouteTableIds": sorted(after - before),
        "RemoveRouteTableIds": sorted(before - after),
    }
    ec2.modify_vpc_endpoint(VpcEndpointId=resource.id, **{key: tables for key, tables in changes.items() if tables})
    retag(ec2, resource.id, context, old, new)
    return resource


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::EC2::VPC",
        honoured=names("CidrBlock EnableDnsSupport EnableDnsHostnames Tags"),
        inert={"InstanceTenancy": "all instances share this one machine"},
        replaced_by=names("CidrBlock InstanceTenancy"),
        attributes=names("VpcId CidrBlock DefaultSecurityGroup"),
        create=_create_vpc,
        update=_update_vpc,
        delete=delete_with("ec2", "delete_vpc", "VpcId", gone=("InvalidVpcID.NotFound",)),
    ),
    ResourceType(
        name="AWS::EC2::InternetGateway",
        honoured=names("Tags"),
        attributes=names("InternetGatewayId"),
        create=_create_internet_gateway,
        update=retag_only,
        delete=delete_with(
            "ec2", "delete_internet_gateway", "InternetGatewayId", gone=("InvalidInternetGatewayID.NotFound",)
        ),
    ),
    ResourceType(
        name="AWS::EC2::VPCGatewayAttachment",
        honoured=names("VpcId InternetGatewayId"),
        attributes=names("AttachmentType"),
        create=_attach_gateway,
        delete=delete_with(
            "ec2",
            "detach_internet_gateway",
            None,
            "InternetGatewayId",
            "VpcId",
            gone=("InvalidInternetGatewayID.NotFound", "Gateway.NotAttached"),
        ),
    ),
    ResourceType(
        name="AWS::EC2::Subnet",
        honoured=names("VpcId CidrBlock AvailabilityZone MapPublicIpOnLaunch Tags"),
        replaced_by=names("VpcId CidrBlock AvailabilityZone"),
        attributes=names("SubnetId VpcId CidrBlock AvailabilityZone"),
        create=_create_subnet,
        update=_update_subnet,
        delete=delete_with("ec2", "delete_subnet", "SubnetId", gone=("InvalidSubnetID.NotFound",)),
    ),
    ResourceType(
        name="AWS::EC2::RouteTable",
        honoured=names("VpcId Tags"),
        replaced_by=names("VpcId"),
        attributes=names("RouteTableId"),
        create=_create_route_table,
        update=retag_only,
        delete=delete_with("ec2", "delete_route_table", "RouteTableId", gone=("InvalidRouteTableID.NotFound",)),
    ),
    ResourceType(
        name="AWS::EC2::SubnetRouteTableAssociation",
        honoured=names("RouteTableId SubnetId"),
        replaced_by=names("SubnetId"),
        attributes=names("Id"),
        create=_associate,
        update=_reassociate,
        delete=delete_with("ec2", "disassociate_route_table", "AssociationId", gone=("InvalidAssociationID.NotFound",)),
    ),
    ResourceType(
        name="AWS::EC2::Route",
        honoured=names("RouteTableId DestinationCidrBlock GatewayId NatGatewayId"),
        replaced_by=names("RouteTableId DestinationCidrBlock"),
        attributes=names("CidrBlock"),
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
        honoured=names("Domain Tags"),
        replaced_by=names("Domain"),
        attributes=names("AllocationId PublicIp"),
        create=_create_address,
        update=_retag_address,
        delete=delete_with("ec2", "release_address", None, "AllocationId", gone=("InvalidAllocationID.NotFound",)),
    ),
    ResourceType(
        name="AWS::EC2::NatGateway",
        honoured=names("SubnetId AllocationId Tags"),
        replaced_by=names("SubnetId AllocationId"),
        attributes=names("NatGatewayId"),
        create=_create_nat_gateway,
        update=retag_only,
        delete=delete_with("ec2", "delete_nat_gateway", "NatGatewayId", gone=("NatGatewayNotFound",)),
    ),
    ResourceType(
        name="AWS::EC2::VPCEndpoint",
        honoured=names("VpcEndpointType VpcId ServiceName Tags"),
        inert={"RouteTableIds": _NO_PACKETS},
        refused={
            "PolicyDocument": "policies of endpoints are not enforced",
            "PrivateDnsEnabled": _NO_INTERFACES,
            "SecurityGroupIds": _NO_INTERFACES,
            "SubnetIds": _NO_INTERFACES,
        },
        replaced_by=names("VpcEndpointType VpcId ServiceName"),
        attributes=names("Id"),
        create=_create_endpoint,
        update=_update_endpoint,
        delete=delete_with("ec2", "delete_vpc_endpoints", "VpcEndpointIds"),
    ),
)
