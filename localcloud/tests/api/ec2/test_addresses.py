"""Addresses are assigned in order from their ranges."""

from __future__ import annotations

import ipaddress

import pytest

from api.templates import Client, Stacks, nodes
from localcloud.api.cloud import Cloud
from localcloud.api.ec2 import addresses
from refusals.templates import ref, resource


def test_subnet_keeps_its_first_four_addresses_and_its_last() -> None:
    network = ipaddress.IPv4Network("10.1.2.0/28")
    taken: set[str] = set()
    while (address := addresses.lowest_free(network, taken)) is not None:
        taken.add(address)
    assert taken == {f"10.1.2.{last}" for last in range(4, 15)}


def test_public_addresses_are_assigned_in_order_and_skip_used_ones() -> None:
    pool = addresses.PublicAddresses()
    assert pool.take(set()) == "198.18.1.1"
    assert pool.take({"198.18.1.2"}) == "198.18.1.3"
    for _ in range(251):
        last = pool.take(set())
    assert last == "198.18.1.254"
    assert pool.take(set()) == "198.18.2.1"


def test_nodes_in_a_public_subnet_have_public_addresses(cloud: Cloud, stacks: Stacks) -> None:
    resources = nodes(2)
    resources["A"]["Properties"]["MapPublicIpOnLaunch"] = True
    stacks.create(resources)
    by_zone = {instance.zone: instance for instance in cloud.snapshot().instances}
    assert by_zone["us-east-1a"].public_ip.startswith("198.18.1.")
    assert by_zone["us-east-1b"].public_ip == ""


@pytest.mark.parametrize(("wanted", "has_one"), [(True, True), (False, False)])
def test_launch_template_interface_overrides_subnet(cloud: Cloud, stacks: Stacks, wanted: bool, has_one: bool) -> None:
    interface = {"DeviceIndex": 0, "AssociatePublicIpAddress": wanted, "Groups": [ref("Group")]}
    resources = nodes(1, data={"NetworkInterfaces": [interface]})
    del resources["Template"]["Properties"]["LaunchTemplateData"]["SecurityGroupIds"]
    resources["A"]["Properties"]["MapPublicIpOnLaunch"] = not wanted
    name = stacks.create(resources)
    (instance,) = cloud.snapshot().instances
    assert bool(instance.public_ip) is has_one
    assert instance.group_ids == (stacks.physical(name, "Group"),)


def test_nat_gateway_has_private_and_elastic_address(cloud: Cloud, stacks: Stacks) -> None:
    resources = nodes(1)
    resources["Address"] = resource("EC2::EIP", Domain="vpc")
    resources["Nat"] = resource(
        "EC2::NatGateway", SubnetId=ref("A"), AllocationId={"Fn::GetAtt": ["Address", "AllocationId"]}
    )
    name = stacks.create(resources)
    (gateway,) = cloud.snapshot().nat_gateways
    assert gateway.public_ip == stacks.physical(name, "Address")
    subnet = next(each for each in cloud.snapshot().subnets if each.id == stacks.physical(name, "A"))
    assert ipaddress.ip_address(gateway.private_ip) in ipaddress.ip_network(subnet.cidr)
    used = [gateway.private_ip, *(instance.private_ip for instance in cloud.snapshot().instances)]
    assert len(used) == len(set(used))
    stacks.delete(name)
    assert cloud.snapshot().nat_gateways == ()


def test_full_subnet_is_reported_as_by_aws(client: Client, stacks: Stacks) -> None:
    resources = nodes(12)
    number = resources["Vpc"]["Properties"]["CidrBlock"].split(".")[1]
    resources["A"]["Properties"]["CidrBlock"] = f"10.{number}.1.0/28"
    resources["Nodes"]["Properties"]["VPCZoneIdentifier"] = [ref("A")]
    name = stacks.create(resources)
    assert any("not enough free addresses" in reason for reason in stacks.reasons(name, "Nodes"))
    assert (
        client("ec2").describe_instances(Filters=[{"Name": "instance-state-name", "Values": ["running"]}])[
            "Reservations"
        ]
        == []
    )
