"""The VPC, its subnets, endpoints and flow logs."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from tests.stacks.clusters.synthesis import Inspected
from tests.stacks.clusters.template import Template
from tests.stacks.conftest import FLOW_BUCKET, VARIANTS, Variant

GROUPS = ("MasterGroup", "WorkerGroup")


def test_two_zones_have_a_public_and_a_private_subnet_each_and_may_share_a_nat_gateway(variant: Variant) -> None:
    network = variant("own images")
    nat, gateway = network.only("AWS::EC2::NatGateway"), network.only("AWS::EC2::InternetGateway")
    assert {network.default_route(subnet) for subnet in network.subnets_of("WorkerGroup")} == {nat}
    assert {network.default_route(subnet) for subnet in network.subnets_of("MasterGroup")} == {gateway}
    assert network.of("AWS::EC2::NatGateway")[nat]["SubnetId"]["Ref"] in network.subnets_of("MasterGroup")
    for group in GROUPS:
        subnets = [network.resources[each]["Properties"] for each in network.subnets_of(group)]
        assert [each["AvailabilityZone"] for each in subnets] == ["us-east-1c", "us-east-1b"]
    assert len(network.of("AWS::EC2::Subnet")) == 4


def test_every_subnet_lies_in_the_vpc_and_none_overlaps_another(variant: Variant) -> None:
    network = variant("own images")
    vpc = ipaddress.ip_network(network.of("AWS::EC2::VPC")[network.only("AWS::EC2::VPC")]["CidrBlock"])
    subnets = [ipaddress.ip_network(item["CidrBlock"]) for item in network.of("AWS::EC2::Subnet").values()]
    assert all(subnet.subnet_of(vpc) for subnet in subnets)  # type: ignore[arg-type]  # both are IPv4
    assert not any(one.overlaps(other) for one in subnets for other in subnets if one is not other)


def test_each_zone_may_have_a_nat_gateway_of_its_own(inspected: Callable[[str], Inspected]) -> None:
    template = inspected("everything").template
    zones = {id: item["AvailabilityZone"] for id, item in template.of("AWS::EC2::Subnet").items()}
    ways = {subnet: template.default_route(subnet) for subnet in template.subnets_of("WorkerGroup")}
    assert len(set(ways.values())) == len(template.of("AWS::EC2::EIP")) == 2
    for subnet, way in ways.items():
        assert zones[subnet] == zones[template.of("AWS::EC2::NatGateway")[way]["SubnetId"]["Ref"]]


def test_in_an_existing_vpc_nothing_of_the_network_is_made(variant: Variant) -> None:
    template, values = variant("existing VPC"), VARIANTS["existing VPC"]
    assert {item["Type"] for item in template.resources.values() if item["Type"].startswith("AWS::EC2::")} == {
        "AWS::EC2::SecurityGroup",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::SecurityGroupEgress",
        "AWS::EC2::LaunchTemplate",
        "AWS::EC2::FlowLog",
    }
    private = list(values["private_subnet_ids"])
    assert template.resources["MasterGroup"]["Properties"]["VPCZoneIdentifier"] == list(values["public_subnet_ids"])
    assert template.resources["WorkerGroup"]["Properties"]["VPCZoneIdentifier"] == private
    assert [target["SubnetId"] for target in template.of("AWS::EFS::MountTarget").values()] == private
    assert {group["VpcId"] for group in template.of("AWS::EC2::SecurityGroup").values()} == {values["vpc_id"]}


def test_endpoints_are_those_asked_for_and_nodes_boot_after_them(
    template: Template, variant: Variant, inspected: Callable[[str], Inspected]
) -> None:
    def services(found: Template, kind: str) -> set[str]:
        endpoints = [each for each in found.of("AWS::EC2::VPCEndpoint").values() if each["VpcEndpointType"] == kind]
        return {each["ServiceName"]["Fn::Join"][1][-1].lstrip(".") for each in endpoints}

    assert (services(template, "Gateway"), services(template, "Interface")) == ({"s3"}, set())
    assert variant("temporary").of("AWS::EC2::VPCEndpoint") == {}
    full = inspected("everything").template
    assert services(full, "Gateway") == {"s3"}
    assert services(full, "Interface") == {"ssm", "ssmmessages", "ec2messages", "ecr.api", "ecr.dkr", "logs"}
    for group in GROUPS:  # creating an endpoint cuts connections
        assert set(full.of("AWS::EC2::VPCEndpoint")) <= set(full.resources[group]["DependsOn"])


def test_only_nodes_reach_the_endpoints_and_only_over_https(inspected: Callable[[str], Inspected]) -> None:
    template = inspected("everything").template
    group = template.group_behind("HTTPS from all nodes")
    nodes = {template.group_behind("SSH from ssh_cidr"), template.group_behind("Each other and the master")}
    assert {rule[2:] for rule in template.rules() if rule[:2] == ("in", group)} == {
        (node, "tcp", 443, 443) for node in nodes
    }
    tables = {
        table["Ref"]
        for each in template.of("AWS::EC2::VPCEndpoint").values()
        for table in each.get("RouteTableIds", [])
    }
    assert tables == set(template.of("AWS::EC2::RouteTable"))


def test_flow_logs_go_to_a_log_group_through_a_role_that_writes_to_it_alone(
    inspected: Callable[[str], Inspected], template: Template
) -> None:
    full = inspected("everything").template
    (log,) = full.of("AWS::EC2::FlowLog").values()
    assert (log["ResourceId"], log["TrafficType"]) == ({"Ref": full.only("AWS::EC2::VPC")}, "ALL")
    role = log["DeliverLogsPermissionArn"]["Fn::GetAtt"][0]
    (trust,) = full.of("AWS::IAM::Role")[role]["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "vpc-flow-logs.amazonaws.com"}
    (policy,) = [each for each in full.of("AWS::IAM::Policy").values() if {"Ref": role} in each["Roles"]]
    assert [each["Resource"] for each in policy["PolicyDocument"]["Statement"]] == [{"Fn::GetAtt": ["FlowLogs", "Arn"]}]
    assert template.of("AWS::EC2::FlowLog") == {}


def test_flow_logs_of_the_clusters_subnets_in_an_existing_vpc_go_to_a_bucket(variant: Variant) -> None:
    template, values = variant("existing VPC"), VARIANTS["existing VPC"]
    logs = list(template.of("AWS::EC2::FlowLog").values())
    subnets = {*values["public_subnet_ids"], *values["private_subnet_ids"]}
    assert {(log["ResourceType"], log["ResourceId"]) for log in logs} == {("Subnet", id) for id in subnets}
    assert {(log["LogDestinationType"], log["LogDestination"]) for log in logs} == {("s3", FLOW_BUCKET)}
    assert all("DeliverLogsPermissionArn" not in log for log in logs)
