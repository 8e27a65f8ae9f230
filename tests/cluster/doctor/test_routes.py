"""The routes of an existing VPC: nodes without a name server or a way out are reported before they boot."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cluster.doctor.finding import FAIL, OK, WARN, Finding
from cluster.doctor.routes import judge_dns_attributes, judge_routes, services, table_of, ways_out
from tests.cluster.doctor.conftest import Examined, config_of

VPC = "vpc-0123456789abcdef0"
PUBLIC, PRIVATE = "subnet-0123456789abcdef0", "subnet-0123456789abcdef1"
CONFIG = config_of(vpc_id=VPC, public_subnet_ids=(PUBLIC,), private_subnet_ids=(PRIVATE,))
LOCAL = {"DestinationCidrBlock": "10.0.0.0/16", "GatewayId": "local", "State": "active"}


def default(state: str = "active", **target: str) -> dict[str, str]:
    return {"DestinationCidrBlock": "0.0.0.0/0", "State": state, **target}


def table(name: str, *routes: dict[str, str], subnet: str = "") -> dict[str, Any]:
    association = {"SubnetId": subnet, "Main": False} if subnet else {"Main": True}
    return {"RouteTableId": name, "Associations": [association], "Routes": [LOCAL, *routes]}


TO_THE_INTERNET = table("rtb-public", default(GatewayId="igw-1"), subnet=PUBLIC)


def of_private(*routes: dict[str, str], endpoints: tuple[dict[str, Any], ...] = ()) -> Finding:
    """Return the only finding for a workers' route table with these routes."""
    tables = [TO_THE_INTERNET, table("rtb-private", *routes, subnet=PRIVATE)]
    (found,) = judge_routes(CONFIG, tables, endpoints)
    return found


@pytest.mark.parametrize(
    "off", [["enableDnsSupport"], ["enableDnsHostnames"], ["enableDnsSupport", "enableDnsHostnames"]]
)
def test_both_attributes_of_name_resolution_must_be_on(off: list[str]) -> None:
    flags = {name: name not in off for name in ("enableDnsSupport", "enableDnsHostnames")}
    found = judge_dns_attributes(CONFIG, flags)
    assert (found.state, [name for name in flags if name in found.what]) == (FAIL, off)
    assert found.remedy.count(f"modify-vpc-attribute --vpc-id {VPC}") == len(off)
    assert judge_dns_attributes(CONFIG, dict.fromkeys(flags, True)).state == OK


def test_subnet_without_route_table_uses_main_table() -> None:
    main = table("rtb-main")
    assert table_of([main, TO_THE_INTERNET], PUBLIC) == TO_THE_INTERNET
    assert table_of([main, TO_THE_INTERNET], PRIVATE) == table_of([TO_THE_INTERNET, main], PRIVATE) == main


@pytest.mark.parametrize(
    ("routes", "says"),
    [
        ((), "has no route 0.0.0.0/0"),
        ((default(NatGatewayId="nat-1"),), "to nat-1"),
        ((default("blackhole", GatewayId="igw-1"),), "to igw-1, which no longer exists"),
    ],
)
def test_public_subnets_need_route_to_internet_gateway(routes: tuple[dict[str, str], ...], says: str) -> None:
    private = table("rtb-private", default(NatGatewayId="nat-1"), subnet=PRIVATE)
    (found,) = judge_routes(CONFIG, [table("rtb-public", *routes, subnet=PUBLIC), private], ())
    assert found.state == FAIL
    assert all(word in found.what for word in (PUBLIC, "rtb-public", says))
    change = "change the target of the route" if routes else "add a route"
    assert found.remedy.startswith(f"in rtb-public, {change} 0.0.0.0/0 to an internet gateway")


@pytest.mark.parametrize(
    "target",
    [
        {"NatGatewayId": "nat-1"},
        {"InstanceId": "i-1", "NetworkInterfaceId": "eni-1"},
        {"NetworkInterfaceId": "eni-1"},
        {"TransitGatewayId": "tgw-1"},
        {"CoreNetworkArn": "arn:aws:networkmanager::123456789012:core-network/core-network-1"},
        {"GatewayId": "vgw-1"},
        {"GatewayId": "vpce-1"},
    ],
)
def test_private_subnets_need_route_to_nat_or_transit_gateway(target: dict[str, str]) -> None:
    assert of_private(default(**target)).state == OK
    gone = of_private(default("blackhole", **target))
    assert (gone.state, "blackhole" in gone.what) == (FAIL, True)


@pytest.mark.parametrize("target", [{"GatewayId": "igw-1"}, {"VpcPeeringConnectionId": "pcx-1"}])
def test_nodes_without_a_public_address_need_more_than_an_internet_gateway_or_a_peer(target: dict[str, str]) -> None:
    found = of_private(default(**target))
    assert (found.state, *target.values()) == (FAIL, found.what.split(" to ")[1].split(":")[0])
    assert all(word in found.what for word in (PRIVATE, "rtb-private"))
    assert found.remedy.startswith("in rtb-private, change the target of the route 0.0.0.0/0 to a NAT gateway")


def gateway(name: str = "rtb-private") -> dict[str, Any]:
    return {
        "ServiceName": "com.amazonaws.us-east-1.s3",
        "VpcEndpointType": "Gateway",
        "State": "available",
        "RouteTableIds": [name],
    }


def interface(name: str, *, private: bool = True, state: str = "available") -> dict[str, Any]:
    return {
        "ServiceName": f"com.amazonaws.us-east-1.{name}",
        "VpcEndpointType": "Interface",
        "State": state,
        "PrivateDnsEnabled": private,
    }


@pytest.mark.parametrize(
    ("endpoints", "missing"),
    [
        ((), "cloudformation, s3"),
        ((gateway(),), "cloudformation"),
        ((interface("cloudformation"), gateway("rtb-other")), "s3"),
        ((interface("cloudformation", private=False), gateway()), "cloudformation"),
        ((interface("cloudformation", state="pending"), gateway()), "cloudformation"),
    ],
)
def test_missing_endpoints_are_listed_without_default_route(
    endpoints: tuple[dict[str, Any], ...], missing: str
) -> None:
    found = of_private(endpoints=endpoints)
    assert (found.state, f"endpoints for {missing} are missing" in found.what) == (FAIL, True)


def test_endpoints_without_default_route_are_a_warning() -> None:
    found = of_private(endpoints=(gateway(), interface("cloudformation")))
    assert (found.state, "packages" in found.what) == (WARN, True)
    assert "an image with every package" in found.remedy


def test_required_endpoints_depend_on_configuration() -> None:
    assert services(CONFIG) == ["cloudformation", "s3"]
    watched = config_of(node_logs=True, node_metrics=True)
    assert services(watched) == ["cloudformation", "logs", "monitoring", "s3", "ssm"]
    sessions = config_of(ssh_access="session-manager", ssh_cidr=())
    assert services(sessions) == ["cloudformation", "monitoring", "s3", "ssm", "ssmmessages"]
    assert "monitoring" not in services(dataclasses.replace(sessions, idle_minutes=0))


def test_vpc_is_checked_only_if_configured(subject: Examined) -> None:
    assert list(ways_out(subject())) == []
    assert list(ways_out(subject(vpc_id=VPC, private_subnet_ids=(PRIVATE,)))) == []


def test_existing_vpc_is_examined(subject: Examined) -> None:
    ec2 = subject().aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    public, private = (ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{n}.0/24")["Subnet"]["SubnetId"] for n in (1, 2))
    examined = subject(vpc_id=vpc, public_subnet_ids=(public,), private_subnet_ids=(private,))

    def states() -> list[tuple[str, str]]:
        return [(each.check, each.state) for each in ways_out(examined)]

    routes = ("VPC routes", FAIL)
    assert states() == [("VPC names", FAIL), routes, routes]
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
    internet = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=internet, VpcId=vpc)
    (main,) = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"]
    ec2.create_route(RouteTableId=main["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", GatewayId=internet)
    assert states() == [("VPC names", OK), routes]  # workers cannot use the main table's internet gateway
    nat = ec2.create_nat_gateway(SubnetId=public, ConnectivityType="private")["NatGateway"]["NatGatewayId"]
    own = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.associate_route_table(RouteTableId=own, SubnetId=private)
    ec2.create_route(RouteTableId=own, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=nat)
    assert states() == [("VPC names", OK), ("VPC routes", OK)]
