"""Each invariant detects the templates that violate it, and no other invariant does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.stacks.clusters.eight import CLUSTERS
from tests.stacks.clusters.invariants import INVARIANTS, broken
from tests.stacks.clusters.synthesis import Inspected
from tests.stacks.clusters.template import Template

Change = Callable[[Template], Any]
ANYBODY: Final = {"CidrIp": "0.0.0.0/0", "IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}
MASTER: Final = "SSH from ssh_cidr"
WORKERS: Final = "Each other and the master"


def first(template: Template, kind: str) -> dict[str, Any]:
    """Return the properties of the first resource of a type."""
    return next(iter(template.of(kind).values()))


def ingress(template: Template, description: str) -> list[dict[str, Any]]:
    """Return the inbound rules inside a security group."""
    found: list[dict[str, Any]] = template.of("AWS::EC2::SecurityGroup")[template.group_behind(description)][
        "SecurityGroupIngress"
    ]
    return found


def add(kind: str, **properties: Any) -> Change:
    return lambda template: template.resources.update(Added={"Type": kind, "Properties": properties})


def route_workers_to_the_internet_gateway(template: Template) -> None:
    nat = template.default_route(template.subnets_of("WorkerGroup")[0])
    routes = template.of("AWS::EC2::Route").values()
    route = next(route for route in routes if route.get("NatGatewayId", {}).get("Ref") == nat)
    route["GatewayId"] = {"Ref": template.only("AWS::EC2::InternetGateway")}


def open_the_workers(template: Template) -> None:
    group = {"Fn::GetAtt": [template.group_behind(WORKERS), "GroupId"]}
    add("AWS::EC2::SecurityGroupIngress", **{**ANYBODY, "CidrIp": "198.18.0.7/32", "GroupId": group})(template)


def allow_for_runs(action: str) -> Change:
    def change(template: Template) -> None:
        statement = next(each for each in template.statements() if each["Action"] == "s3:PutObject")
        statement["Action"] = [action, "s3:PutObject"]

    return change


def allow_workers_in_the_bucket_policy(template: Template) -> None:
    allowed = {"Action": "s3:GetObject", "Effect": "Allow", "Principal": {"AWS": {"Fn::GetAtt": ["Workers", "Arn"]}}}
    resource = {"Fn::Join": ["", [{"Fn::GetAtt": ["RunBucket", "Arn"]}, "/*"]]}
    first(template, "AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"].append({**allowed, "Resource": resource})


def grant(kind: str, **statement: Any) -> Change:
    """Return a change that adds a statement to the first resource of a type."""
    document = {"Statement": {"Effect": "Allow", **statement}}
    return lambda template: first(template, kind).update(AnyPolicy=document)


BREAKING: Final[dict[str, list[Change]]] = {
    "workers_have_no_way_in": [
        route_workers_to_the_internet_gateway,
        lambda template: first(template, "AWS::EC2::Subnet").update(MapPublicIpOnLaunch=True),
        lambda template: template.template_of("WorkerGroup")["NetworkInterfaces"][0].update(
            AssociatePublicIpAddress=True
        ),
    ],
    "nobody_else_comes_in": [
        lambda template: ingress(template, MASTER).append(ANYBODY),
        open_the_workers,
        lambda template: ingress(template, MASTER)[0].update(ToPort=23),
        lambda template: ingress(template, MASTER).pop(),
        lambda template: ingress(template, MASTER).append({"CidrIpv6": "::/0", "IpProtocol": "-1"}),
    ],
    "all_is_encrypted": [
        lambda template: template.template_of("WorkerGroup")["BlockDeviceMappings"][0]["Ebs"].update(Encrypted=False),
        lambda template: first(template, "AWS::EFS::FileSystem").pop("Encrypted"),
        lambda template: first(template, "AWS::S3::Bucket").pop("BucketEncryption"),
        lambda template: first(template, "AWS::Logs::LogGroup").pop("KmsKeyId"),
    ],
    "metadata_wants_a_token": [
        lambda template: template.template_of("MasterGroup")["MetadataOptions"].update(HttpTokens="optional"),
        add("AWS::EC2::Instance"),
    ],
    "nothing_is_allowed_in_excess": [
        lambda template: first(template, "AWS::IAM::Role").pop("PermissionsBoundary"),
        lambda template: first(template, "AWS::IAM::Role").update(ManagedPolicyArns=["arn:aws:iam::aws:policy/A"]),
        grant("AWS::IAM::Policy", Action="s3:*", Resource="arn:aws:s3:::mine"),
        grant("AWS::IAM::Policy", Action=["ec2:RunInstances"], Resource="*"),
        grant("AWS::IAM::Policy", Action="cloudwatch:PutMetricData", Resource="*"),
        grant("AWS::IAM::Policy", NotAction="iam:PassRole", Resource="mine"),
        grant("AWS::S3::BucketPolicy", Action="s3:GetObject", Resource="*", Principal="*"),
        grant("AWS::KMS::Key", Action="kms:*", Resource="*", Principal={"AWS": "*"}),
    ],
    "the_bucket_is_private": [
        lambda template: first(template, "AWS::S3::Bucket")["PublicAccessBlockConfiguration"].update(
            BlockPublicPolicy=False
        ),
        lambda template: first(template, "AWS::S3::BucketPolicy")["PolicyDocument"].update(Statement=[]),
    ],
    "archived_runs_are_out_of_the_nodes_reach": [
        allow_for_runs("s3:GetObject"),
        allow_for_runs("s3:DeleteObject"),
        allow_workers_in_the_bucket_policy,
    ],
    "nothing_runs_but_the_nodes": [add("AWS::Lambda::Function")],
    "user_data_fits": [
        lambda template: template.template_of("WorkerGroup")["UserData"]["Fn::Base64"]["Fn::Join"][1].append(
            "#" * 16384
        )
    ],
}


@pytest.mark.parametrize("law", [law.__name__ for law in INVARIANTS])
def test_violation_is_found_by_exactly_one_invariant(law: str, inspected: Callable[[str], Inspected]) -> None:
    for number, change in enumerate(BREAKING[law]):
        template = Template(copy.deepcopy(inspected("everything").template.document))
        change(template)
        found = broken(template, CLUSTERS["everything"].config())
        assert {text.partition(":")[0] for text in found} == {law}, number


def test_routes_in_existing_vpc_violate_an_invariant(inspected: Callable[[str], Inspected]) -> None:
    template = Template(copy.deepcopy(inspected("existing VPC").template.document))
    added = {"SubnetId": "subnet-0bbbbbbbbbbbbbbb1", "RouteTableId": {"Ref": "Odd"}}
    add("AWS::EC2::SubnetRouteTableAssociation", **added)(template)
    assert broken(template, CLUSTERS["existing VPC"].config())
