"""The VPC as properties of all its subnets and routes."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

import pytest

from tests.stacks.clusters.template import Template


@pytest.fixture(params=[{}, {"availability_zones": 2, "vpc_cidr": "10.9.0.0/24"}], ids=["one-zone", "two-zones"])
def network(request: pytest.FixtureRequest, synthesise: Callable[..., Template]) -> Template:
    return synthesise(**request.param)


def test_workers_subnets_never_route_to_the_internet_gateway(network: Template) -> None:
    nat = network.only("AWS::EC2::NatGateway")
    assert {network.default_route(subnet) for subnet in network.subnets_of("WorkerGroup")} == {nat}


def test_the_masters_subnets_route_to_the_internet_gateway(network: Template) -> None:
    gateway = network.only("AWS::EC2::InternetGateway")
    assert {network.default_route(subnet) for subnet in network.subnets_of("MasterGroup")} == {gateway}


def test_there_is_one_nat_gateway_with_an_elastic_address_in_a_public_subnet(network: Template) -> None:
    nat = network.of("AWS::EC2::NatGateway")[network.only("AWS::EC2::NatGateway")]
    assert nat["AllocationId"]["Fn::GetAtt"] == [network.only("AWS::EC2::EIP"), "AllocationId"]
    assert nat["SubnetId"]["Ref"] in network.subnets_of("MasterGroup")


def test_no_subnet_hands_out_public_addresses_by_itself(network: Template) -> None:
    assert all(subnet["MapPublicIpOnLaunch"] is False for subnet in network.of("AWS::EC2::Subnet").values())


def test_every_subnet_lies_in_the_vpc_and_none_overlaps_another(network: Template) -> None:
    vpc = ipaddress.ip_network(network.of("AWS::EC2::VPC")[network.only("AWS::EC2::VPC")]["CidrBlock"])
    subnets = [ipaddress.ip_network(item["CidrBlock"]) for item in network.of("AWS::EC2::Subnet").values()]
    assert all(subnet.subnet_of(vpc) for subnet in subnets)  # type: ignore[arg-type]  # both are IPv4
    assert not any(one.overlaps(other) for one in subnets for other in subnets if one is not other)


def test_names_resolve_in_the_vpc_since_the_file_system_is_mounted_by_name(network: Template) -> None:
    vpc = network.of("AWS::EC2::VPC")[network.only("AWS::EC2::VPC")]
    assert vpc["EnableDnsSupport"] is True
    assert vpc["EnableDnsHostnames"] is True


def test_each_zone_has_one_public_and_one_private_subnet(synthesise: Callable[..., Template]) -> None:
    for zones in (1, 2):
        template = synthesise(availability_zones=zones) if zones > 1 else synthesise()
        assert len(template.subnets_of("MasterGroup")) == len(template.subnets_of("WorkerGroup")) == zones
        assert len(template.of("AWS::EC2::Subnet")) == 2 * zones


def test_each_zone_may_have_a_nat_gateway_of_its_own(synthesise: Callable[..., Template]) -> None:
    template = synthesise(availability_zones=2, nat_gateways="one-per-zone")
    assert len(template.of("AWS::EC2::NatGateway")) == len(template.of("AWS::EC2::EIP")) == 2
    ways = [template.default_route(subnet) for subnet in template.subnets_of("WorkerGroup")]
    assert sorted(ways) == sorted(template.of("AWS::EC2::NatGateway"))
    for subnet, way in zip(template.subnets_of("WorkerGroup"), ways, strict=True):
        beside = template.of("AWS::EC2::NatGateway")[way]["SubnetId"]["Ref"]
        assert _zone(template, subnet) == _zone(template, beside)


def _zone(template: Template, subnet: str) -> object:
    return template.of("AWS::EC2::Subnet")[subnet]["AvailabilityZone"]


def test_with_session_manager_the_master_stands_in_a_private_subnet_without_a_public_address(
    synthesise: Callable[..., Template],
) -> None:
    template = synthesise(ssh_access="session-manager", ssh_cidr=())
    assert template.subnets_of("MasterGroup") == template.subnets_of("WorkerGroup")
    (interface,) = template.template_of("MasterGroup")["NetworkInterfaces"]
    assert interface["AssociatePublicIpAddress"] is False


EXISTING: dict[str, Any] = {
    "vpc_id": "vpc-0123456789abcdef0",
    "public_subnet_ids": ("subnet-0aaaaaaaaaaaaaaa1",),
    "private_subnet_ids": ("subnet-0bbbbbbbbbbbbbbb1", "subnet-0bbbbbbbbbbbbbbb2"),
    "availability_zones": 2,
}


def test_in_an_existing_vpc_nothing_of_the_network_is_made(synthesise: Callable[..., Template]) -> None:
    template = synthesise(**EXISTING)
    made = {item["Type"] for item in template.resources.values() if item["Type"].startswith("AWS::EC2::")}
    assert made == {
        "AWS::EC2::SecurityGroup",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::SecurityGroupEgress",
        "AWS::EC2::LaunchTemplate",
    }


def test_in_an_existing_vpc_nodes_and_mount_targets_are_in_the_given_subnets(
    synthesise: Callable[..., Template],
) -> None:
    template = synthesise(**EXISTING)
    assert template.resources["MasterGroup"]["Properties"]["VPCZoneIdentifier"] == ["subnet-0aaaaaaaaaaaaaaa1"]
    private = list(EXISTING["private_subnet_ids"])
    assert template.resources["WorkerGroup"]["Properties"]["VPCZoneIdentifier"] == private
    assert [target["SubnetId"] for target in template.of("AWS::EFS::MountTarget").values()] == private
    assert {group["VpcId"] for group in template.of("AWS::EC2::SecurityGroup").values()} == {EXISTING["vpc_id"]}
    assert template.document["Outputs"]["VpcId"]["Value"] == EXISTING["vpc_id"]


def test_the_network_is_deepcfns_by_default(template: Template) -> None:
    (public,) = template.subnets_of("MasterGroup")
    assert template.of("AWS::EC2::Subnet")[public]["CidrBlock"] == "10.0.0.0/24"


def test_subnets_lie_in_the_zones_that_are_named(synthesise: Callable[..., Template]) -> None:
    template = synthesise(availability_zones=2, zones=("us-east-1c", "us-east-1b"))
    for group in ("MasterGroup", "WorkerGroup"):
        subnets = [template.resources[each]["Properties"] for each in template.subnets_of(group)]
        assert [each["AvailabilityZone"] for each in subnets] == ["us-east-1c", "us-east-1b"]
