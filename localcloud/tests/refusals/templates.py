"""Cases of rejected requests, and small templates for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Template = dict[str, Any]
"""A CloudFormation template."""
Client = Callable[[str], Any]
"""A function that creates a boto3 client of a service."""
Calls = Callable[[Client], object]
"""Calls of the API. The last one is tested."""

T = TypeVar("T", Template, Calls)


@dataclasses.dataclass(frozen=True)
class Case(Generic[T]):
    """The smallest violation of a rule of AWS, its error, and the nearest valid request."""

    entry: str
    """Label of the rule: its service and a number."""
    violation: T
    error: str
    """AWS's error code, or its text if it is known."""
    valid: T

    def __str__(self) -> str:
        """Return the case's name in pytest's output."""
        return f"{self.entry} {self.error}"


ACCOUNT = "123456789012"
REGION = "us-east-1"


def ref(name: str) -> dict[str, Any]:
    """Return a reference to a resource."""
    return {"Ref": name}


def arn_of(name: str) -> dict[str, Any]:
    """Return a reference to a resource's ARN."""
    return {"Fn::GetAtt": [name, "Arn"]}


def resource(kind: str, **properties: Any) -> dict[str, Any]:
    """Return a resource of a type, which is given without `AWS::`."""
    return {"Type": f"AWS::{kind}", "Properties": properties}


def template(**resources: dict[str, Any]) -> Template:
    """Return a template with these resources."""
    return {"Resources": resources}


def only(kind: str, **properties: Any) -> Template:
    """Return a template with one resource."""
    return template(It=resource(kind, **properties))


def network(**more: dict[str, Any]) -> Template:
    """Return a template with a VPC, two subnets in two zones, a security group, and these resources."""
    return template(
        Vpc=resource("EC2::VPC", CidrBlock="10.0.0.0/16", EnableDnsHostnames=True, EnableDnsSupport=True),
        A=subnet(1, 0),
        B=subnet(2, 1),
        Group=resource("EC2::SecurityGroup", GroupDescription="nodes", VpcId=ref("Vpc")),
        **more,
    )


def subnet(third: int, zone: int) -> dict[str, Any]:
    """Return a subnet of the VPC of `network`, in the zone with this number."""
    where = {"Fn::Select": [zone, {"Fn::GetAZs": ""}]}
    return resource("EC2::Subnet", VpcId=ref("Vpc"), CidrBlock=f"10.0.{third}.0/24", AvailabilityZone=where)


def launch_template(**data: Any) -> dict[str, Any]:
    """Return a launch template of a small instance."""
    return resource("EC2::LaunchTemplate", LaunchTemplateData={"InstanceType": "t3.micro", **data})


def group(**properties: Any) -> dict[str, Any]:
    """Return an Auto Scaling group without instances, in the subnets of `network`, with the template `Launch`."""
    source = {"LaunchTemplateId": ref("Launch"), "Version": {"Fn::GetAtt": ["Launch", "LatestVersionNumber"]}}
    given = {"MinSize": "0", "MaxSize": "2", "VPCZoneIdentifier": [ref("A"), ref("B")], **properties}
    if "MixedInstancesPolicy" not in given:
        given["LaunchTemplate"] = source
    return resource("AutoScaling::AutoScalingGroup", **given)


def mixed(types: list[dict[str, Any]], **distribution: Any) -> dict[str, Any]:
    """Return a mixed instances policy with the template `Launch`."""
    source = {"LaunchTemplateId": ref("Launch"), "Version": {"Fn::GetAtt": ["Launch", "LatestVersionNumber"]}}
    chosen = {"LaunchTemplate": {"LaunchTemplateSpecification": source, "Overrides": types}}
    return {**chosen, "InstancesDistribution": distribution} if distribution else chosen


def statement(**more: Any) -> dict[str, Any]:
    """Return a policy with one statement, which allows."""
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **more}]}


def trust(**principal: Any) -> dict[str, Any]:
    """Return a trust policy."""
    return statement(Principal=principal, Action="sts:AssumeRole")
