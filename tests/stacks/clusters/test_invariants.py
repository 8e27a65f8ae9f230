"""Each invariant finds what it is there for: a template spoilt in one place, and what is said of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.stacks.clusters.eight import CLUSTERS
from tests.stacks.clusters.invariants import INVARIANTS, broken
from tests.stacks.clusters.synthesis import Inspected
from tests.stacks.clusters.template import Template

Document = dict[str, Any]
ANYBODY = {"CidrIp": "0.0.0.0/0", "IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}


def first(document: Document, kind: str) -> dict[str, Any]:
    """Return the properties of the first resource of a type."""
    found: dict[str, Any] = next(i["Properties"] for i in document["Resources"].values() if i["Type"] == kind)
    return found


def group(document: Document, description: str) -> tuple[str, dict[str, Any]]:
    return next(
        (id, item["Properties"])
        for id, item in document["Resources"].items()
        if item["Properties"].get("GroupDescription") == description
    )


def lead_workers_to_the_internet_gateway(document: Document) -> None:
    template = Template(document)
    subnet = template.subnets_of("WorkerGroup")[0]
    route = next(
        route
        for route in template.of("AWS::EC2::Route").values()
        if route.get("NatGatewayId", {}).get("Ref") == template.default_route(subnet)
    )
    route["GatewayId"] = {"Ref": template.only("AWS::EC2::InternetGateway")}


def hand_out_addresses(document: Document) -> None:
    first(document, "AWS::EC2::Subnet")["MapPublicIpOnLaunch"] = True


def address_the_workers(document: Document) -> None:
    Template(document).template_of("WorkerGroup")["NetworkInterfaces"][0]["AssociatePublicIpAddress"] = True


def admit_anybody_to_the_master(document: Document) -> None:
    group(document, "SSH from ssh_cidr")[1]["SecurityGroupIngress"].append(ANYBODY)


def admit_the_given_network_to_the_workers(document: Document) -> None:
    id, _ = group(document, "Each other and the master")
    rule = {**ANYBODY, "CidrIp": "198.18.0.7/32", "GroupId": {"Fn::GetAtt": [id, "GroupId"]}}
    document["Resources"]["Hole"] = {"Type": "AWS::EC2::SecurityGroupIngress", "Properties": rule}


def open_another_port(document: Document) -> None:
    group(document, "SSH from ssh_cidr")[1]["SecurityGroupIngress"][0]["ToPort"] = 23


def forget_the_given_network(document: Document) -> None:
    group(document, "SSH from ssh_cidr")[1]["SecurityGroupIngress"].pop()


def admit_version_6(document: Document) -> None:
    group(document, "SSH from ssh_cidr")[1]["SecurityGroupIngress"].append({"CidrIpv6": "::/0", "IpProtocol": "-1"})


def leave_a_volume_plain(document: Document) -> None:
    Template(document).template_of("WorkerGroup")["BlockDeviceMappings"][0]["Ebs"]["Encrypted"] = False


def leave_the_file_system_plain(document: Document) -> None:
    del document["Resources"]["FileSystem"]["Properties"]["Encrypted"]


def leave_the_bucket_plain(document: Document) -> None:
    del document["Resources"]["RunBucket"]["Properties"]["BucketEncryption"]


def leave_a_log_without_the_key(document: Document) -> None:
    del first(document, "AWS::Logs::LogGroup")["KmsKeyId"]


def take_metadata_without_a_token(document: Document) -> None:
    Template(document).template_of("MasterGroup")["MetadataOptions"]["HttpTokens"] = "optional"


def launch_an_instance_beside(document: Document) -> None:
    document["Resources"]["Odd"] = {"Type": "AWS::EC2::Instance", "Properties": {}}


def leave_the_boundary(document: Document) -> None:
    del first(document, "AWS::IAM::Role")["PermissionsBoundary"]


def publish_the_bucket(document: Document) -> None:
    document["Resources"]["RunBucket"]["Properties"]["PublicAccessBlockConfiguration"]["BlockPublicPolicy"] = False


def take_requests_in_the_clear(document: Document) -> None:
    first(document, "AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"] = []


def _allow_of_the_runs(document: Document, action: str) -> None:
    statement = next(
        each
        for policy in Template(document).of("AWS::IAM::Policy").values()
        for each in policy["PolicyDocument"]["Statement"]
        if each["Action"] == "s3:PutObject"
    )
    statement["Action"] = [action, "s3:PutObject"]


def read_the_runs(document: Document) -> None:
    _allow_of_the_runs(document, "s3:GetObject")


def delete_the_runs(document: Document) -> None:
    _allow_of_the_runs(document, "s3:DeleteObject")


def delete_versions_of_the_runs(document: Document) -> None:
    _allow_of_the_runs(document, "s3:DeleteObjectVersion")


def admit_the_workers_to_the_runs_by_the_buckets_own_policy(document: Document) -> None:
    allowed = {"Action": "s3:GetObject", "Effect": "Allow", "Principal": {"AWS": {"Fn::GetAtt": ["Workers", "Arn"]}}}
    resource = {"Fn::Join": ["", [{"Fn::GetAtt": ["RunBucket", "Arn"]}, "/*"]]}
    first(document, "AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"].append({**allowed, "Resource": resource})


def run_a_function(document: Document) -> None:
    document["Resources"]["Odd"] = {"Type": "AWS::Lambda::Function", "Properties": {}}


def boot_at_length(document: Document) -> None:
    Template(document).template_of("WorkerGroup")["UserData"]["Fn::Base64"]["Fn::Join"][1].append("#" * 16384)


SPOILT: list[tuple[str, Callable[[Document], None]]] = [
    ("workers_have_no_way_in", lead_workers_to_the_internet_gateway),
    ("workers_have_no_way_in", hand_out_addresses),
    ("workers_have_no_way_in", address_the_workers),
    ("nobody_else_comes_in", admit_anybody_to_the_master),
    ("nobody_else_comes_in", admit_the_given_network_to_the_workers),
    ("nobody_else_comes_in", open_another_port),
    ("nobody_else_comes_in", forget_the_given_network),
    ("nobody_else_comes_in", admit_version_6),
    ("all_is_encrypted", leave_a_volume_plain),
    ("all_is_encrypted", leave_the_file_system_plain),
    ("all_is_encrypted", leave_the_bucket_plain),
    ("all_is_encrypted", leave_a_log_without_the_key),
    ("metadata_wants_a_token", take_metadata_without_a_token),
    ("metadata_wants_a_token", launch_an_instance_beside),
    ("nothing_is_allowed_in_excess", leave_the_boundary),
    ("the_bucket_is_private", publish_the_bucket),
    ("the_bucket_is_private", take_requests_in_the_clear),
    ("archived_runs_are_out_of_the_nodes_reach", read_the_runs),
    ("archived_runs_are_out_of_the_nodes_reach", delete_the_runs),
    ("archived_runs_are_out_of_the_nodes_reach", delete_versions_of_the_runs),
    ("archived_runs_are_out_of_the_nodes_reach", admit_the_workers_to_the_runs_by_the_buckets_own_policy),
    ("nothing_runs_but_the_nodes", run_a_function),
    ("user_data_fits", boot_at_length),
]


@pytest.mark.parametrize(("law", "spoil"), SPOILT, ids=[spoil.__name__ for _, spoil in SPOILT])
def test_what_breaks_an_invariant_is_found_by_it_and_by_no_other(
    law: str, spoil: Callable[[Document], None], inspected: Callable[[str], Inspected]
) -> None:
    document = copy.deepcopy(inspected("everything").template.document)
    spoil(document)
    found = broken(Template(document), CLUSTERS["everything"].config())
    assert {text.partition(":")[0] for text in found} == {law}


def test_every_invariant_is_broken_by_something() -> None:
    assert {law for law, _ in SPOILT} == {law.__name__ for law in INVARIANTS}


def test_routes_in_an_existing_vpc_break_an_invariant(inspected: Callable[[str], Inspected]) -> None:
    document = copy.deepcopy(inspected("existing VPC").template.document)
    properties = {"SubnetId": "subnet-0bbbbbbbbbbbbbbb1", "RouteTableId": {"Ref": "Odd"}}
    document["Resources"]["Odd"] = {"Type": "AWS::EC2::SubnetRouteTableAssociation", "Properties": properties}
    assert broken(Template(document), CLUSTERS["existing VPC"].config())
