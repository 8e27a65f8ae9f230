"""Resource types of networks: VPCs, subnets, internet gateways."""

from __future__ import annotations

from typing import Any

from localcloud.api.cloudformation.types.handlers import delete_with, retag, retag_only, tagged, truth, unless_gone
from localcloud.api.cloudformation.types.resource_type import Context, Physical, Properties, ResourceType

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


def _delete_vpc(context: Context, resource: Physical, properties: Properties) -> None:
    unless_gone(("InvalidVpcID.NotFound",), context.aws.client("ec2").delete_vpc, VpcId=resource.id)


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


def _delete_subnet(context: Context, resource: Physical, properties: Properties) -> None:
    unless_gone(("InvalidSubnetID.NotFound",), context.aws.client("ec2").delete_subnet, SubnetId=resource.id)


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::EC2::VPC",
        honoured=frozenset({"CidrBlock", "EnableDnsSupport", "EnableDnsHostnames", "Tags"}),
        inert={"InstanceTenancy": "all instances share this one machine"},
        replaced_by=frozenset({"CidrBlock", "InstanceTenancy"}),
        attributes=frozenset({"VpcId", "CidrBlock", "DefaultSecurityGroup"}),
        create=_create_vpc,
        update=_update_vpc,
        delete=_delete_vpc,
    ),
    ResourceType(
        name="AWS::EC2::InternetGateway",
        honoured=frozenset({"Tags"}),
        attributes=frozenset({"InternetGatewayId"}),
        create=_create_internet_gateway,
        update=retag_only,
        delete=delete_with(
            "ec2", "delete_internet_gateway", "InternetGatewayId", gone=("InvalidInternetGatewayID.NotFound",)
        ),
    ),
    ResourceType(
        name="AWS::EC2::VPCGatewayAttachment",
        honoured=frozenset({"VpcId", "InternetGatewayId"}),
        attributes=frozenset({"AttachmentType"}),
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
        honoured=frozenset({"VpcId", "CidrBlock", "AvailabilityZone", "MapPublicIpOnLaunch", "Tags"}),
        replaced_by=frozenset({"VpcId", "CidrBlock", "AvailabilityZone"}),
        attributes=frozenset({"SubnetId", "VpcId", "CidrBlock", "AvailabilityZone"}),
        create=_create_subnet,
        update=_update_subnet,
        delete=_delete_subnet,
    ),
)
