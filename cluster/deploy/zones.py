"""The zones of a cluster if cdk.json has none: `fab up` chooses them once, and the deployed stack keeps them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cluster.aws.client import aws_errors, entries
from stacks.config import ClusterConfig

if TYPE_CHECKING:
    from cluster.aws.client import Aws

_SUBNET = "AWS::EC2::Subnet"


def node_types(config: ClusterConfig) -> list[str]:
    """Return the instance types of all nodes, sorted."""
    return sorted({config.master_instance_type, *config.worker_types})


def of(aws: Aws, config: ClusterConfig, template: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the zones of a cluster's subnets: those that are named, those of the deployed template, or chosen ones.

    `template` is empty if the cluster is not deployed.
    """
    if config.zones:
        return config.zones
    if config.vpc_id:
        ids = [*config.private_subnet_ids, *config.public_subnet_ids]
        with aws_errors("reading the zones of the subnets"):
            subnets = aws.client("ec2").describe_subnets(Filters=[{"Name": "subnet-id", "Values": ids}])["Subnets"]
        return tuple(sorted({subnet["AvailabilityZone"] for subnet in subnets}))
    kept = named(template)
    if len(kept) >= config.availability_zones:
        return kept[: config.availability_zones]
    listed = usual(aws)
    if template and not kept:
        return listed[: config.availability_zones]
    return choose(config, listed, offers(aws, node_types(config)), kept)


def are_ours(config: ClusterConfig, template: Mapping[str, Any]) -> bool:
    """Return whether `fab up` names the zones in the template, and neither cdk.json, a VPC nor CloudFormation does."""
    return not (config.zones or config.vpc_id or (template and not named(template)))


def named(template: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the zones that a template names for its subnets, in their order."""
    subnets = [each for each in template.get("Resources", {}).values() if each.get("Type") == _SUBNET]
    zones = [each["Properties"].get("AvailabilityZone") for each in subnets]
    return tuple(dict.fromkeys(zone for zone in zones if isinstance(zone, str)))


def usual(aws: Aws) -> tuple[str, ...]:
    """Return the zones in the order in which CloudFormation takes them (its reference of Fn::GetAZs).

    They are sorted by name; if any has a default subnet, only such zones count.
    """
    with aws_errors("reading the zones"):
        ec2 = aws.client("ec2")
        listed = ec2.describe_availability_zones(Filters=[{"Name": "zone-type", "Values": ["availability-zone"]}])
        defaults = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
    zones = sorted(each["ZoneName"] for each in listed["AvailabilityZones"])
    preferred = {subnet["AvailabilityZone"] for subnet in defaults}
    return tuple(zone for zone in zones if not preferred or zone in preferred)


def offers(aws: Aws, types: Sequence[str]) -> dict[str, set[str]]:
    """Return the zones that offer each type."""
    with aws_errors("reading what the zones offer"):
        found = entries(
            aws.client("ec2"),
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": list(types)}],
        )
    return {kind: {each["Location"] for each in found if each["InstanceType"] == kind} for kind in types}


def choose(
    config: ClusterConfig, listed: Sequence[str], offered: Mapping[str, Collection[str]], kept: Sequence[str] = ()
) -> tuple[str, ...]:
    """Choose as many zones as the subnets span, `kept` ones first, then those that offer the most of the types.

    A zone without the master's type, or without any of the workers', comes last: the doctor reports it.
    """

    def rank(zone: str) -> tuple[bool, int]:
        workers = sum(zone in offered[kind] for kind in config.worker_types)
        return not (workers and zone in offered[config.master_instance_type]), -workers

    others = sorted((zone for zone in listed if zone not in kept), key=rank)  # stable: by name among equals
    return (*kept, *others)[: config.availability_zones]
