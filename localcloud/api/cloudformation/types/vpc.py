"""Resource types of the network: VPC, subnets, internet gateways."""

from __future__ import annotations

from typing import Any

from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.types.resource_type import (
    Kind,
    Made,
    Place,
    Properties,
    retag,
    retag_only,
    tagged,
    truth,
    unless_gone,
)

_VPC_FLAGS = ("EnableDnsSupport", "EnableDnsHostnames")


def _create_vpc(place: Place, properties: Properties) -> Made:
    ec2 = place.aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock=properties["CidrBlock"])["Vpc"]
    vpc_id = vpc["VpcId"]
    ec2.create_tags(Resources=[vpc_id], Tags=place.tags(properties.get("Tags")))
    _set_vpc_flags(ec2, vpc_id, properties)
    groups = ec2.describe_security_groups(
        Filters=[{"Name": "vpc-id", "Values": [vpc_id]}, {"Name": "group-name", "Values": ["default"]}]
    )["SecurityGroups"]
    attributes = {"VpcId": vpc_id, "CidrBlock": vpc["CidrBlock"], "DefaultSecurityGroup": groups[0]["GroupId"]}
    return Made(physical_id=vpc_id, attributes=attributes)


def _set_vpc_flags(ec2: Any, vpc_id: str, properties: Properties) -> None:
    for flag in _VPC_FLAGS:
        if flag in properties:
            ec2.modify_vpc_attribute(VpcId=vpc_id, **{flag: {"Value": truth(properties[flag])}})


def _update_vpc(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    ec2 = place.aws.client("ec2")
    _set_vpc_flags(ec2, made.physical_id, new)
    retag(ec2, made.physical_id, place, old, new)
    return made


def _delete_vpc(place: Place, made: Made, properties: Properties) -> None:
    del properties
    ec2 = place.aws.client("ec2")
    interfaces = ec2.describe_network_interfaces(Filters=[{"Name": "vpc-id", "Values": [made.physical_id]}])
    if interfaces["NetworkInterfaces"]:
        raise ResourceError(f"The vpc '{made.physical_id}' has dependencies and cannot be deleted.")
    unless_gone(("InvalidVpcID.NotFound",), ec2.delete_vpc, VpcId=made.physical_id)


def _create_internet_gateway(place: Place, properties: Properties) -> Made:
    made = place.aws.client("ec2").create_internet_gateway(
        TagSpecifications=tagged("internet-gateway", place, properties)
    )["InternetGateway"]
    return Made(physical_id=made["InternetGatewayId"], attributes={"InternetGatewayId": made["InternetGatewayId"]})


def _delete_internet_gateway(place: Place, made: Made, properties: Properties) -> None:
    del properties
    ec2 = place.aws.client("ec2")
    unless_gone(("InvalidInternetGatewayID.NotFound",), ec2.delete_internet_gateway, InternetGatewayId=made.physical_id)


def _attach_gateway(place: Place, properties: Properties) -> Made:
    place.aws.client("ec2").attach_internet_gateway(
        InternetGatewayId=properties["InternetGatewayId"], VpcId=properties["VpcId"]
    )
    return Made(physical_id=f"IGW|{properties['VpcId']}", attributes={"AttachmentType": "IGW"})


def _detach_gateway(place: Place, made: Made, properties: Properties) -> None:
    del made
    unless_gone(
        ("InvalidInternetGatewayID.NotFound", "Gateway.NotAttached"),
        place.aws.client("ec2").detach_internet_gateway,
        InternetGatewayId=properties["InternetGatewayId"],
        VpcId=properties["VpcId"],
    )


def _create_subnet(place: Place, properties: Properties) -> Made:
    ec2 = place.aws.client("ec2")
    zone = {"AvailabilityZone": properties["AvailabilityZone"]} if "AvailabilityZone" in properties else {}
    subnet = ec2.create_subnet(
        VpcId=properties["VpcId"],
        CidrBlock=properties["CidrBlock"],
        TagSpecifications=tagged("subnet", place, properties),
        **zone,
    )["Subnet"]
    _map_public(ec2, subnet["SubnetId"], properties)
    attributes = {key: subnet[key] for key in ("SubnetId", "VpcId", "CidrBlock", "AvailabilityZone")}
    return Made(physical_id=subnet["SubnetId"], attributes=attributes)


def _map_public(ec2: Any, subnet_id: str, properties: Properties) -> None:
    wanted = truth(properties.get("MapPublicIpOnLaunch", False))
    ec2.modify_subnet_attribute(SubnetId=subnet_id, MapPublicIpOnLaunch={"Value": wanted})


def _update_subnet(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    ec2 = place.aws.client("ec2")
    _map_public(ec2, made.physical_id, new)
    retag(ec2, made.physical_id, place, old, new)
    return made


def _delete_subnet(place: Place, made: Made, properties: Properties) -> None:
    del properties
    ec2 = place.aws.client("ec2")
    held = ec2.describe_network_interfaces(Filters=[{"Name": "subnet-id", "Values": [made.physical_id]}])
    if held["NetworkInterfaces"]:
        raise ResourceError(f"The subnet '{made.physical_id}' has dependencies and cannot be deleted.")
    unless_gone(("InvalidSubnetID.NotFound",), ec2.delete_subnet, SubnetId=made.physical_id)


KINDS = (
    Kind(
        type="AWS::EC2::VPC",
        carried_out=frozenset({"CidrBlock", "EnableDnsSupport", "EnableDnsHostnames", "Tags"}),
        inert={"InstanceTenancy": "all instances share this one machine"},
        replaced_by=frozenset({"CidrBlock", "InstanceTenancy"}),
        attributes=frozenset({"VpcId", "CidrBlock", "DefaultSecurityGroup"}),
        create=_create_vpc,
        update=_update_vpc,
        delete=_delete_vpc,
    ),
    Kind(
        type="AWS::EC2::InternetGateway",
        carried_out=frozenset({"Tags"}),
        attributes=frozenset({"InternetGatewayId"}),
        create=_create_internet_gateway,
        update=retag_only,
        delete=_delete_internet_gateway,
    ),
    Kind(
        type="AWS::EC2::VPCGatewayAttachment",
        carried_out=frozenset({"VpcId", "InternetGatewayId"}),
        attributes=frozenset({"AttachmentType"}),
        create=_attach_gateway,
        delete=_detach_gateway,
    ),
    Kind(
        type="AWS::EC2::Subnet",
        carried_out=frozenset({"VpcId", "CidrBlock", "AvailabilityZone", "MapPublicIpOnLaunch", "Tags"}),
        replaced_by=frozenset({"VpcId", "CidrBlock", "AvailabilityZone"}),
        attributes=frozenset({"SubnetId", "VpcId", "CidrBlock", "AvailabilityZone"}),
        create=_create_subnet,
        update=_update_subnet,
        delete=_delete_subnet,
    ),
)
