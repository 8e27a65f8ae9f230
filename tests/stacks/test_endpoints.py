"""Endpoints: the ones that are asked for, and who may use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.stacks.clusters.template import Template

ALL: dict[str, Any] = {"vpc_endpoints": ("s3", "ssm", "ecr", "logs"), "availability_zones": 2}


def services(template: Template, kind: str) -> dict[str, dict[str, Any]]:
    """Return the endpoints of a kind by the last part of their service's name."""
    return {
        item["ServiceName"]["Fn::Join"][1][-1].lstrip("."): item
        for item in template.of("AWS::EC2::VPCEndpoint").values()
        if item["VpcEndpointType"] == kind
    }


def test_by_default_there_is_the_one_that_costs_nothing(template: Template) -> None:
    assert set(services(template, "Gateway")) == {"s3"}
    assert len(template.of("AWS::EC2::VPCEndpoint")) == 1


def test_there_is_none_where_none_is_wanted(synthesise: Callable[..., Template]) -> None:
    assert synthesise(vpc_endpoints=()).of("AWS::EC2::VPCEndpoint") == {}


def test_an_existing_vpc_keeps_its_own(synthesise: Callable[..., Template]) -> None:
    existing = {
        "vpc_id": "vpc-0123456789abcdef0",
        "public_subnet_ids": ("subnet-0aaaaaaaaaaaaaaa1",),
        "private_subnet_ids": ("subnet-0bbbbbbbbbbbbbbb1",),
    }
    assert synthesise(**existing).of("AWS::EC2::VPCEndpoint") == {}


def test_nodes_boot_after_the_endpoints_which_cut_connections_when_they_are_made(
    synthesise: Callable[..., Template],
) -> None:
    template = synthesise(**ALL)
    for group in ("MasterGroup", "WorkerGroup"):
        assert set(template.of("AWS::EC2::VPCEndpoint")) <= set(template.resources[group]["DependsOn"])


def test_the_way_to_s3_is_in_every_route_table_and_needs_no_security_group(synthesise: Callable[..., Template]) -> None:
    template = synthesise(vpc_endpoints=("s3",))
    (endpoint,) = services(template, "Gateway").values()
    assert {table["Ref"] for table in endpoint["RouteTableIds"]} == set(template.of("AWS::EC2::RouteTable"))
    assert len(template.of("AWS::EC2::SecurityGroup")) == 3


def test_each_name_stands_for_all_services_that_its_clients_ask(synthesise: Callable[..., Template]) -> None:
    found = services(synthesise(**ALL), "Interface")
    assert set(found) == {"ssm", "ssmmessages", "ec2messages", "ecr.api", "ecr.dkr", "logs"}


def test_interfaces_are_in_the_private_subnets_under_the_services_usual_names(
    synthesise: Callable[..., Template],
) -> None:
    template = synthesise(**ALL)
    for endpoint in services(template, "Interface").values():
        assert [subnet["Ref"] for subnet in endpoint["SubnetIds"]] == template.subnets_of("WorkerGroup")
        assert endpoint["PrivateDnsEnabled"] is True


def test_nodes_alone_reach_the_interfaces_and_only_over_https(synthesise: Callable[..., Template]) -> None:
    template = synthesise(**ALL)
    group = template.group_behind("HTTPS from all nodes")
    nodes = {template.group_behind("SSH from ssh_cidr"), template.group_behind("Each other and the master")}
    assert {rule[2:] for rule in template.rules() if rule[:2] == ("in", group)} == {
        (node, "tcp", 443, 443) for node in nodes
    }
    for endpoint in services(template, "Interface").values():
        assert [item["Fn::GetAtt"][0] for item in endpoint["SecurityGroupIds"]] == [group]
