"""Checkups of the nodes: does the image exist and fit its type, and do the zones offer the type."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cluster.aws import aws_errors
from cluster.checkups.finding import FAIL, OK, UNKNOWN, WARN, Finding, Subject
from stacks import images
from stacks.config import MASTER, WORKER, ClusterConfig
from stacks.instance_types import find

if TYPE_CHECKING:
    from cluster.aws import Aws

ROLES = (MASTER, WORKER)


def image(subject: Subject) -> Iterator[Finding]:
    """Check that the parameters of the images lead to images, and that these fit."""
    config = subject.config
    wanted = {role: images.choose(_given(config, role), _type(config, role)) for role in ROLES}
    with aws_errors("reading the image parameters"):
        answer = subject.aws.client("ssm").get_parameters(Names=sorted(set(wanted.values())))
    ids = {each["Name"]: each["Value"] for each in answer["Parameters"]}
    with aws_errors("describing the images"):
        # A filter, for an id that is gone would be an error of its own.
        answer = subject.aws.client("ec2").describe_images(
            Filters=[{"Name": "image-id", "Values": sorted(set(ids.values()))}]
        )
    found = {each["ImageId"]: each for each in answer["Images"]}
    now = datetime.datetime.now(datetime.UTC)
    for role, parameter in wanted.items():
        image_id = ids.get(parameter, "")
        yield judge_image(config, role, parameter, image_id, found.get(image_id), now)


def _type(config: ClusterConfig, role: str) -> str:
    return str(getattr(config, f"{role}_instance_type"))


def _given(config: ClusterConfig, role: str) -> str:
    return str(getattr(config, f"{role}_image_parameter"))


def judge_image(
    config: ClusterConfig,
    role: str,
    parameter: str,
    image_id: str,
    described: Mapping[str, Any] | None,
    now: datetime.datetime,
) -> Finding:
    """Judge an image by DescribeImages' entry: None where the account sees no image of that id."""

    def found(state: str, what: str, remedy: str = "") -> Finding:
        return Finding(check=f"{role} image", state=state, what=what, remedy=remedy)

    key = f"{role}_image_parameter"
    if not image_id:
        remedy = f"set {key} to one that this region has: `aws ssm get-parameters-by-path --path /aws/service/...`"
        return found(FAIL, f"there is no parameter {parameter} in this region", remedy)
    if described is None:
        return found(FAIL, f"{parameter} leads to {image_id}, which this account does not see", f"set another {key}")
    if described.get("State", "available") != "available":
        return found(FAIL, f"{image_id} is {described['State']}", f"set another {key}")
    kind, built_for = find(_type(config, role)), described.get("Architecture", "")
    if kind is not None and built_for not in kind.architectures:
        processors = " or ".join(kind.architectures)
        return found(FAIL, f"{image_id} is for {built_for}, {kind.name} has {processors}", f"set another {key}")
    needs_gib, has_gib = _root_gib(described), getattr(config, f"{role}_volume_gib")
    if needs_gib > has_gib:
        remedy = f"set {role}_volume_gib to {needs_gib} or more"
        return found(FAIL, f"{image_id} takes {needs_gib} GiB, {role}_volume_gib is {has_gib}", remedy)
    ends = str(described.get("DeprecationTime") or "")
    if ends and datetime.datetime.fromisoformat(ends) <= now:
        return found(WARN, f"{image_id} is deprecated since {ends[:10]}", f"set another {key}, or leave it empty")
    return found(OK, f"{image_id} ({described.get('Name') or parameter}), {built_for or 'of unknown architecture'}")


def _root_gib(described: Mapping[str, Any]) -> int:
    root = described.get("RootDeviceName")
    sizes = [
        int(mapping.get("Ebs", {}).get("VolumeSize") or 0)
        for mapping in described.get("BlockDeviceMappings", ())
        if mapping.get("DeviceName") == root
    ]
    return max(sizes, default=0)


def offering(subject: Subject) -> Iterator[Finding]:
    """Check that the zones of the subnets offer the instance types."""
    config = subject.config
    zones = zones_of(subject.aws, config)
    wanted = sorted({_type(config, role) for role in ROLES})
    with aws_errors("asking what the zones offer"):
        pages = (
            subject.aws.client("ec2")
            .get_paginator("describe_instance_type_offerings")
            .paginate(LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": wanted}])
        )
        offers = [(each["InstanceType"], each["Location"]) for page in pages for each in page["InstanceTypeOfferings"]]
    for kind in wanted:
        yield judge_offering(kind, zones, {zone for name, zone in offers if name == kind}, own=not config.vpc_id)


def judge_offering(kind: str, zones: Sequence[str], offered: Collection[str], *, own: bool) -> Finding:
    """Judge whether every zone of the subnets offers a type. `own`: the VPC's zones are CloudFormation's choice."""
    name = f"zones for {kind}"
    missing = [zone for zone in zones if zone not in offered]
    if not zones:
        return Finding(check=name, state=UNKNOWN, what="the zones of the subnets are not known")
    if not missing:
        return Finding(check=name, state=OK, what=f"offered in {', '.join(zones)}")
    elsewhere = ", ".join(sorted(offered)) or "no zone of this region"
    remedy = (
        "take another instance type, or another region"
        if own and not offered
        else f"make a VPC with subnets there and name it with vpc_id, or take another type ({elsewhere})"
        if own
        else "name subnets of a zone that offers it, or take another type"
    )
    what = f"not offered in {', '.join(missing)}, where the nodes would be; offered in {elsewhere}"
    return Finding(check=name, state=FAIL, what=what, remedy=remedy)


def zones_of(aws: Aws, config: ClusterConfig) -> list[str]:
    """Return the zones of the cluster's subnets.

    In a VPC of its own they are the first of Fn::GetAZs: by name, and only those with a default subnet if any has one
    (CloudFormation's reference of that function).
    """
    with aws_errors("asking for the zones"):
        ec2 = aws.client("ec2")
        if config.vpc_id:
            ids = [*config.private_subnet_ids, *config.public_subnet_ids]
            subnets = ec2.describe_subnets(Filters=[{"Name": "subnet-id", "Values": ids}])["Subnets"]
            return sorted({subnet["AvailabilityZone"] for subnet in subnets})
        listed = ec2.describe_availability_zones(Filters=[{"Name": "zone-type", "Values": ["availability-zone"]}])
        defaults = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
    zones = sorted(each["ZoneName"] for each in listed["AvailabilityZones"])
    preferred = {subnet["AvailabilityZone"] for subnet in defaults}
    return [zone for zone in zones if not preferred or zone in preferred][: config.availability_zones]
