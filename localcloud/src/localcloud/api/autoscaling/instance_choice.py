"""The choice of an Auto Scaling group's next instance: type, on-demand or spot, and whether there is capacity.

AWS chooses by price and by the capacity of its pools. In the embedded cloud instances have no prices, and capacity is
unlimited until `python -m localcloud limit TYPE COUNT`. Every allocation strategy uses the types in their order.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from moto.ec2.exceptions import EC2ClientError

NO_CAPACITY: Final = "InsufficientInstanceCapacity"
UNSUPPORTED: Final = "Unsupported"
TRY_ANOTHER: Final = frozenset({NO_CAPACITY, UNSUPPORTED})
"""EC2 error codes after which a group tries another type or zone, and later retries."""
_GONE: Final = ("terminated", "shutting-down")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Purchase:
    """Type and market (on-demand or spot) of an instance to launch."""

    instance_type: str
    """Empty for the launch template's type."""
    spot: bool


AS_THE_TEMPLATE_SAYS: Final = Purchase(instance_type="", spot=False)


def choices(policy: Mapping[str, Any] | None, on_spot: Sequence[bool]) -> Iterator[Purchase]:
    """Yield the purchases for a group's next instance, in order of preference.

    `policy` is the group's mixed instances policy. Without a policy, the only purchase is the launch template's.
    `on_spot` contains True for each spot instance of the group and False for each on-demand instance.
    """
    if not policy:
        yield AS_THE_TEMPLATE_SAYS
        return
    spot = on_spot.count(False) >= on_demand_of(policy.get("InstancesDistribution") or {}, len(on_spot) + 1)
    types = [each["InstanceType"] for each in policy["LaunchTemplate"].get("Overrides") or () if "InstanceType" in each]
    for instance_type in types or [""]:
        yield Purchase(instance_type=instance_type, spot=spot)


def on_demand_of(distribution: Mapping[str, Any], size: int) -> int:
    """Return how many of a group's `size` instances must be on-demand instances.

    `distribution` is the InstancesDistribution of the group's policy. As on AWS, the share above the base is rounded
    up.
    """
    base = int(distribution.get("OnDemandBaseCapacity") or 0)
    percent = distribution.get("OnDemandPercentageAboveBaseCapacity")
    above = max(0, size - base)
    return min(size, base) + math.ceil(above * (100 if percent is None else int(percent)) / 100)


def limit_pools(ec2: Any, check: Callable[[str, str], None]) -> None:
    """Call `check` with type and zone before each launch of a group from now on, instead of any earlier check.

    `check` raises EC2's error if there is no capacity.
    """
    ec2.__dict__["_check_pool"] = check


def check_room(ec2: Any, instance_type: str, zone: str) -> None:
    """Raise EC2's error if a zone lacks capacity for another instance of a type, or if the type's limit is reached.

    Only `limit_pools` limits the capacity of zones.
    """
    if check := ec2.__dict__.get("_check_pool"):
        check(instance_type, zone)
    limit = limits(ec2).get(instance_type)
    if limit is None:
        return
    running = [
        instance
        for reservation in ec2.reservations.values()
        for instance in reservation.instances
        if instance.instance_type == instance_type and instance.state not in _GONE
    ]
    if len(running) >= limit:
        raise EC2ClientError(
            NO_CAPACITY,
            f"We currently do not have sufficient {instance_type} capacity in the Availability Zone you requested: the "
            f"embedded cloud is limited to {limit}; to change this: python -m localcloud limit {instance_type} COUNT",
        )


def limits(ec2: Any) -> dict[str, int]:
    """Return the maximum number of instances by type, as a dict to read and change. Other types have no limit.

    A reset of moto clears the limits.
    """
    found: dict[str, int] = ec2.__dict__.setdefault("_room", {})
    return found
