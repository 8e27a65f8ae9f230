"""Entries of networks, security groups and endpoints that cdk-preflight refuses."""

from __future__ import annotations

from typing import Any, Final

from tests.refusals.case import Case, Template
from tests.refusals.templates import arn_of, network, only, ref, resource, template, trust


def _rule(**properties: Any) -> Template:
    """Return a security group with one rule."""
    rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "CidrIp": "198.18.0.0/24", **properties}
    return only("EC2::SecurityGroup", GroupDescription="nodes", SecurityGroupIngress=[rule])


def _standalone(first: int, last: int) -> Template:
    """Return a security group with a rule for a range of ports beside it."""
    ports = {"IpProtocol": "tcp", "FromPort": first, "ToPort": last, "CidrIp": "198.18.0.0/24"}
    return network(Rule=resource("EC2::SecurityGroupIngress", GroupId=ref("Group"), **ports))


def _named(name: str) -> Template:
    return only("EC2::SecurityGroup", GroupDescription="nodes", GroupName=name)


def _endpoint(kind: str, service: str, **properties: Any) -> Template:
    """Return an endpoint in the VPC of `network`."""
    name = f"com.amazonaws.us-east-1.{service}"
    given = {"VpcId": ref("Vpc"), "VpcEndpointType": kind, "ServiceName": name, **properties}
    return network(Endpoint=resource("EC2::VPCEndpoint", **given))


def _same_zone() -> Template:
    """Return an endpoint with subnets in one zone, which the template names."""
    found = _endpoint("Interface", "ssm", SubnetIds=[ref("A"), ref("B")])
    for name in "AB":
        found["Resources"][name]["Properties"]["AvailabilityZone"] = "us-east-1a"
    return found


def _flow_log(**properties: Any) -> Template:
    log = {"ResourceType": "VPC", "ResourceId": ref("Vpc"), "TrafficType": "ALL", **properties}
    vpc = resource("EC2::VPC", CidrBlock="10.0.0.0/16")
    role = resource("IAM::Role", AssumeRolePolicyDocument=trust(Service="vpc-flow-logs.amazonaws.com"))
    return template(Vpc=vpc, Role=role, Logs=resource("Logs::LogGroup"), It=resource("EC2::FlowLog", **log))


def _mount(*groups: Any) -> Template:
    """Return a mount target with some security groups."""
    given = {"FileSystemId": ref("Files"), "SubnetId": ref("A"), "SecurityGroups": list(groups)}
    return network(Files=resource("EFS::FileSystem"), Target=resource("EFS::MountTarget", **given))


def _two_vpcs(second: str) -> Template:
    """Return a file system with a target in a VPC, and another in one of the subnets here or in another VPC."""
    more = {
        "Other": resource("EC2::VPC", CidrBlock="10.1.0.0/16"),
        "C": resource("EC2::Subnet", VpcId=ref("Other"), CidrBlock="10.1.0.0/24"),
        "Files": resource("EFS::FileSystem"),
    }
    given = {"FileSystemId": ref("Files"), "SecurityGroups": [ref("Group")]}
    targets = {f"In{name}": resource("EFS::MountTarget", SubnetId=ref(name), **given) for name in ("A", second)}
    return network(**more, **targets)


_LOGS: Final = {"LogDestinationType": "cloud-watch-logs", "LogGroupName": ref("Logs")}
_GROUPS: Final = tuple(f"sg-0123456789abcdef{n}" for n in range(6))

CASES: Final[tuple[Case[Template], ...]] = (
    Case(
        "EC2-01",
        _rule(Description="Ranks to Horovod's launcher"),
        "pf-ec2-sg-rule-description",
        _rule(Description="Ranks to the launcher of Horovod"),
    ),
    Case("EC2-04", _named("sg-train-workers"), "pf-ec2-sg-group-name", _named("train-sg-workers")),
    Case("EC2-05", _named("default"), "pf-ec2-sg-group-name-default", _named("default-workers")),
    Case("EC2-07", _standalone(65535, 1024), "pf-ec2-sg-port-range", _standalone(1024, 65535)),
    Case("EC2-07", _standalone(65536, 65536), "pf-ec2-sg-port-range", _standalone(65535, 65535)),
    *(
        Case(
            "EC2-12",
            only("EC2::VPC", CidrBlock=wrong),
            "pf-ec2-vpc-cidr-reserved-range",
            only("EC2::VPC", CidrBlock=right),
        )
        for wrong, right in (
            ("169.254.0.0/16", "240.0.0.0/16"),
            ("0.0.0.0/16", "100.64.0.0/16"),
            ("127.0.0.0/16", "10.0.0.0/16"),
            ("224.0.0.0/16", "198.18.0.0/16"),
        )
    ),
    Case(
        "EC2-23",
        _same_zone(),
        "pf-ec2-vpce-subnet-az-unique",
        _endpoint("Interface", "ssm", SubnetIds=[ref("A"), ref("B")]),
    ),
    Case("EC2-24", _endpoint("Gateway", "ssm"), "pf-ec2-vpce-gateway-service", _endpoint("Gateway", "s3")),
    Case(
        "EC2-26",
        _flow_log(**_LOGS),
        "pf-ec2-flow-log-destination-config",
        _flow_log(**_LOGS, DeliverLogsPermissionArn=arn_of("Role")),
    ),
    Case("EFS-10", _mount(*_GROUPS), "pf-efs-mount-target-network", _mount(*_GROUPS[:5])),
    Case("EFS-11", _two_vpcs("C"), "pf-efs-mount-target-network", _two_vpcs("B")),
)
