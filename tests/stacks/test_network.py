"""The VPC, its subnets, endpoints and flow logs that the committed templates do not show."""

from __future__ import annotations

from tests.stacks.conftest import FLOW_BUCKET, VARIANTS, Variant

GROUPS = ("MasterGroup", "WorkerGroup")


def test_two_zones_have_two_subnets_each_and_may_share_a_nat_gateway(variant: Variant) -> None:
    network = variant("own images")
    nat, gateway = network.only("AWS::EC2::NatGateway"), network.only("AWS::EC2::InternetGateway")
    assert {network.default_route(subnet) for subnet in network.subnets_of("WorkerGroup")} == {nat}
    assert {network.default_route(subnet) for subnet in network.subnets_of("MasterGroup")} == {gateway}
    assert network.of("AWS::EC2::NatGateway")[nat]["SubnetId"]["Ref"] in network.subnets_of("MasterGroup")
    for group in GROUPS:
        subnets = [network.resources[each]["Properties"] for each in network.subnets_of(group)]
        assert [each["AvailabilityZone"] for each in subnets] == ["us-east-1c", "us-east-1b"]
    assert len(network.of("AWS::EC2::Subnet")) == 4


def test_no_endpoint_is_created_unless_configured(variant: Variant) -> None:
    assert variant("temporary").of("AWS::EC2::VPCEndpoint") == {}


def test_flow_logs_of_subnets_in_existing_vpc_are_sent_to_bucket(variant: Variant) -> None:
    template, values = variant("existing VPC"), VARIANTS["existing VPC"]
    logs = list(template.of("AWS::EC2::FlowLog").values())
    subnets = {*values["public_subnet_ids"], *values["private_subnet_ids"]}
    assert {(log["ResourceType"], log["ResourceId"]) for log in logs} == {("Subnet", id) for id in subnets}
    assert {(log["LogDestinationType"], log["LogDestination"]) for log in logs} == {("s3", FLOW_BUCKET)}
    assert all("DeliverLogsPermissionArn" not in log for log in logs)
