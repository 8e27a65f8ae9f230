"""Choose the zones of a cluster if cdk.json has none. `fab up` chooses them once, and the deployed stack keeps them."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cluster.aws.client import entries
from cluster.aws.errors import aws_errors
from cluster.errors import AwsError
from stacks.config import ClusterConfig

if TYPE_CHECKING:
    from cluster.aws.client import Aws

_SUBNET = "AWS::EC2::Subnet"


def node_types(config: ClusterConfig) -> list[str]:
    """Return the instance types of all nodes, sorted."""
    return sorted({config.master_instance_type, *config.worker_types})


def of(aws: Aws, config: ClusterConfig, template: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the zones of a cluster's subnets. They come from cdk.json, its existing subnets or the deployed template.

    If a deployed template names none, they are the zones that CloudFormation uses. For a new cluster, they are chosen.
    If cdk.json now requires more zones than the template names, the further ones are chosen. `template` is empty if the
    cluster is not deployed. There may be fewer than `availability_zones`. Raises AwsError.
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
    if template and not kept:
        return usual(aws)[: config.availability_zones]
    return choose(config, all_zones(aws), offers(aws, node_types(config)), kept, reserved=_reserved(aws, config))


def are_ours(config: ClusterConfig, template: Mapping[str, Any]) -> bool:
    """Return whether `fab up` chooses the zones of the cluster, or chose them when it was deployed.

    False if cdk.json or an existing VPC determines the zones, or if the deployed `template` names none, so that
    CloudFormation chose them. `template` is empty if the cluster is not deployed.
    """
    return not (config.zones or config.vpc_id or (template and not named(template)))


def named(template: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the zones that a template names for its subnets, each once, in their order; () if it names none."""
    subnets = [each for each in template.get("Resources", {}).values() if each.get("Type") == _SUBNET]
    zones = [each["Properties"].get("AvailabilityZone") for each in subnets]
    return tuple(dict.fromkeys(zone for zone in zones if isinstance(zone, str)))


def usual(aws: Aws) -> tuple[str, ...]:
    """Return the zones that CloudFormation uses for a template that names none, in its order. Raises AwsError.

    According to the reference of Fn::GetAZs, they are sorted by name. If any zone has a default subnet, zones without a
    default subnet are left out.
    """
    zones, with_default = _listed(aws)
    return tuple(zone for zone in zones if not with_default or zone in with_default)


def all_zones(aws: Aws) -> tuple[str, ...]:
    """Return all zones of the region, those with a default subnet first. Raises AwsError.

    The others can be used too, because a zone that the template names needs no default subnet.
    """
    zones, with_default = _listed(aws)
    return tuple(sorted(zones, key=lambda zone: zone not in with_default))


@functools.lru_cache(maxsize=1)
def _listed(aws: Aws) -> tuple[list[str], set[str]]:
    """Return all zones, sorted by name, and the zones with a default subnet. Raises AwsError.

    The answer is cached, so a task asks AWS once.
    """
    with aws_errors("reading the zones"):
        ec2 = aws.client("ec2")
        listed = ec2.describe_availability_zones(Filters=[{"Name": "zone-type", "Values": ["availability-zone"]}])
        defaults = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
    zones = sorted(each["ZoneName"] for each in listed["AvailabilityZones"])
    return zones, {subnet["AvailabilityZone"] for subnet in defaults}


def _reserved(aws: Aws, config: ClusterConfig) -> str:
    """Return the zone of the capacity reservation in cdk.json; "" if cdk.json has none, or if AWS does not show it."""
    wanted = config.capacity_reservation
    if not wanted.startswith("cr-"):
        return ""
    try:
        found = describe_reservation(aws, wanted)
    except AwsError:
        return ""  # the check of the reservation reports it
    return str(found["AvailabilityZone"]) if found else ""


def describe_reservation(aws: Aws, reservation_id: str) -> Mapping[str, Any] | None:
    """Return the entry of DescribeCapacityReservations; None if the account has no such reservation.
    Raises AwsError.
    """
    with aws_errors(f"describing {reservation_id}"):
        # Use a filter, because naming a missing id is an error.
        found = aws.client("ec2").describe_capacity_reservations(
            Filters=[{"Name": "capacity-reservation-id", "Values": [reservation_id]}]
        )["CapacityReservations"]
    return found[0] if found else None


def offers(aws: Aws, types: Sequence[str]) -> dict[str, set[str]]:
    """Return the zones that offer each instance type, by type; an empty set if no zone does. Raises AwsError."""
    with aws_errors("reading the instance types that the zones offer"):
        found = entries(
            aws.client("ec2"),
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": list(types)}],
        )
    return {kind: {each["Location"] for each in found if each["InstanceType"] == kind} for kind in types}


def choose(
    config: ClusterConfig,
    listed: Sequence[str],
    offered: Mapping[str, Collection[str]],
    kept: Sequence[str] = (),
    *,
    reserved: str = "",
) -> tuple[str, ...]:
    """Choose `availability_zones` zones: first the `kept` ones, then `reserved`, then the best of `listed`.

    The best offer the master's type and a worker type. Among these, several zones with a common worker type are
    preferred, then zones with the most worker types, then the order of `listed`. A zone without the master's type, or
    without any worker type, comes last, and the doctor reports it. Returns fewer zones if `listed` has too few.
    """
    count = config.availability_zones
    fit = [zone for zone in (*kept, *listed) if zone in offered[config.master_instance_type]]
    common: Collection[str] = ()
    if count > 1:
        choices = [offered[kind] for kind in config.worker_types]
        common = next(
            (each for each in choices if {*kept} <= {*each} and len({*fit} & {*each}) >= count),
            (),
        )

    def rank(zone: str) -> tuple[bool, bool, bool, int]:
        workers = sum(zone in offered[kind] for kind in config.worker_types)
        return zone != reserved, not (workers and zone in fit), zone not in common, -workers

    others = sorted((zone for zone in listed if zone not in kept), key=rank)
    return (*kept, *others)[:count]
