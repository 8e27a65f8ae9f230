"""Cluster placement groups: create, describe, delete, and check launches.

moto has none. All hosts share one machine, so a placement group does not affect performance. AWS's rules apply: the
instance type must support the group, all its instances are in one zone, and only an empty group can be deleted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.responses import EC2Response
from moto.ec2.utils import EC2_PREFIX_TO_RESOURCE, random_id

from localcloud.api.monkeypatch import added

_STRATEGY: Final = "cluster"
_PREFIX: Final = "pg"
_GONE: Final = ("terminated", "shutting-down")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlacementGroup:
    """One placement group with the strategy `cluster`."""

    id: str
    name: str
    arn: str


@added(EC2Response, "create_placement_group")
def create_placement_group(self: Any) -> ActionResult:
    """Create a placement group, and answer CreatePlacementGroup. Only the strategy `cluster` is supported.

    Reject a name that another group has.
    """
    name = self._get_param("GroupName")
    if not name:
        raise EC2ClientError("MissingParameter", "The request must contain the parameter groupName")
    strategy = self._get_param("Strategy") or _STRATEGY
    for parameter in ("PartitionCount", "SpreadLevel", "LinkedGroupId"):
        if self._get_param(parameter):
            raise EC2ClientError(
                "UnsupportedOperation", f"The embedded cloud does not support {parameter} of placement groups."
            )
    if strategy != _STRATEGY:
        raise EC2ClientError(
            "UnsupportedOperation",
            f"The embedded cloud does not support placement groups with the strategy {strategy}, only cluster.",
        )
    groups = _groups(self.ec2_backend)
    if name in groups:
        raise EC2ClientError("InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists.")
    id = random_id(_PREFIX, size=17)
    partition, account, region = self.partition, self.current_account, self.region
    arn = f"arn:{partition}:ec2:{region}:{account}:placement-group/{name}"
    groups[name] = PlacementGroup(id=id, name=name, arn=arn)
    tags = self._parse_tag_specification().get("placement-group", {})
    if tags:
        EC2_PREFIX_TO_RESOURCE[_PREFIX] = "placement-group"  # moto needs it to tag the group
        self.ec2_backend.create_tags([id], tags)
    return ActionResult({"PlacementGroup": _described(self.ec2_backend, groups[name])})


@added(EC2Response, "describe_placement_groups")
def describe_placement_groups(self: Any) -> ActionResult:
    """Answer DescribePlacementGroups with the placement groups of the given names, or with all of them.

    Reject an unknown name, and a request with ids or filters.
    """
    for parameter in ("GroupIds", "Filters"):
        if self._get_param(parameter):
            raise EC2ClientError(
                "UnsupportedOperation", f"The embedded cloud describes placement groups by name, not by {parameter}."
            )
    ec2 = self.ec2_backend
    names = self._get_param("GroupNames", [])
    groups = [_known(ec2, name) for name in names] if names else _groups(ec2).values()
    return ActionResult({"PlacementGroups": [_described(ec2, group) for group in groups]})


@added(EC2Response, "delete_placement_group")
def delete_placement_group(self: Any) -> ActionResult:
    """Delete a placement group, and answer DeletePlacementGroup.

    Reject an unknown group, and a group with instances.
    """
    group = _known(self.ec2_backend, self._get_param("GroupName"))
    if _members(self.ec2_backend, group.name):
        raise EC2ClientError(
            "InvalidPlacementGroup.InUse", f"The placement group '{group.name}' is in use and may not be deleted."
        )
    del _groups(self.ec2_backend)[group.name]
    return EmptyResult()


def admit(ec2: Any, placement: Mapping[str, Any], instance_type: str, subnet_id: str) -> str:
    """Check a launch into a placement group; return the group's name, or "" if the launch has no group.

    `placement` is the launch template's Placement. Raises EC2's errors for an unknown group, an instance type that does
    not support groups, and a subnet in another zone than the group's instances.
    """
    if not placement.get("GroupName") and not placement.get("GroupId"):
        return ""
    by_id = {group.id: group.name for group in _groups(ec2).values()}
    group = _known(ec2, placement.get("GroupName") or by_id.get(placement["GroupId"]) or placement["GroupId"])
    supported = (
        INSTANCE_TYPES.get(instance_type, {}).get("PlacementGroupInfo", {}).get("SupportedStrategies", [_STRATEGY])
    )
    if _STRATEGY not in supported:
        raise EC2ClientError(
            "InvalidParameterCombination",
            f"Cluster placement groups are not supported by the '{instance_type}' instance type. Specify a supported "
            "instance type or change the placement group strategy, and try again.",
        )
    zone = ec2.get_subnet(subnet_id).availability_zone
    others = {member.placement.zone for member in _members(ec2, group.name)} - {zone}
    if others:
        raise EC2ClientError(
            "InvalidParameterCombination",
            f"The cluster placement group '{group.name}' has instances in {', '.join(sorted(others))}. All its "
            f"instances must be in one Availability Zone, so the launch in {zone} is rejected.",
        )
    return group.name


def _groups(ec2: Any) -> dict[str, PlacementGroup]:
    """Return a backend's groups by name. A reset of moto removes them."""
    found: dict[str, PlacementGroup] = ec2.__dict__.setdefault("_placement_groups", {})
    return found


def _known(ec2: Any, name: str) -> PlacementGroup:
    """Return the group with a name. Raises EC2's error if it is unknown."""
    group = _groups(ec2).get(name)
    if group is None:
        raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
    return group


def _members(ec2: Any, name: str) -> list[Any]:
    """Return a group's instances that are not terminated."""
    return [
        instance
        for reservation in ec2.reservations.values()
        for instance in reservation.instances
        if instance.placement.group_name == name and instance.state not in _GONE
    ]


def _described(ec2: Any, group: PlacementGroup) -> dict[str, Any]:
    """Return a group in the API's form."""
    tags = ec2.describe_tags(filters={"resource-id": [group.id]})
    return {
        "GroupName": group.name,
        "GroupId": group.id,
        "GroupArn": group.arn,
        "State": "available",
        "Strategy": _STRATEGY,
        "Tags": [{"Key": tag["key"], "Value": tag["value"]} for tag in tags],
    }
