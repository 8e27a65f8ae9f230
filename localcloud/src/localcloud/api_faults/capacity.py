"""Partial or missing capacity for a time, and a zone without an instance type.

EC2 user guide, "Troubleshoot instance launch issues" (`InsufficientInstanceCapacity`); EC2 API reference, "Error codes"
(`Unsupported`) and DescribeInstanceTypeOfferings. A group records the failure as an activity, tries its other types and
zones, and retries later.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from moto.ec2.exceptions import EC2ClientError

from localcloud.api.autoscaling import instance_choice
from localcloud.api.monkeypatch import replace
from localcloud.api_faults.throttling import Draws

SHORTAGES: Final = 1 / 3
"""Probability that a pool (a type in a zone) becomes short at a launch, if the last shortage ended CALM_S ago."""
SHORT_S: Final = (5.0, 30.0)
MAX_IN_SHORTAGE: Final = 1
"""Maximum number of instances that a short pool still provides."""
CALM_S: Final = 60.0
"""Seconds after a shortage, or after a launch without one, in which a pool has capacity."""
LACKS: Final = 1 / 3
"""Probability that the region's second or third zone lacks a type. The first has all, as a group may only use it."""


@dataclasses.dataclass(kw_only=True)
class _Shortage:
    """State of a pool: the end of its latest shortage, and the instances it still provides."""

    ends_at: float
    left: int


class Capacity:
    """Decides which launches have capacity. A pool (a type in a zone) is short of capacity for a time, at random."""

    def __init__(self, draws: Draws, clock: Callable[[], float] = time.monotonic) -> None:
        self._draws, self._clock = draws, clock
        self._shortages: dict[tuple[str, str], _Shortage] = {}
        self._lacking: dict[str, str] = {}

    def attach(self, ec2: Any) -> None:
        """Limit the launches of Auto Scaling groups, and the instance types that moto's EC2 lists for a zone.

        A reset of moto ends this.
        """
        zones = [zone.name for zone in ec2.describe_availability_zones()]
        instance_choice.limit_pools(ec2, lambda instance_type, zone: self.check(instance_type, zone, zones))
        original = ec2.describe_instance_type_offerings

        def describe_instance_type_offerings(*args: Any, **kwargs: Any) -> list[Any]:
            offered = original(*args, **kwargs)
            return [each for each in offered if self.lacking(each["InstanceType"], zones) != each["Location"]]

        replace(ec2, "describe_instance_type_offerings", describe_instance_type_offerings)

    def lacking(self, instance_type: str, zones: Sequence[str]) -> str:
        """Return the zone that lacks a type, or "" if all zones have it. It is never the first of the region's `zones`.

        The zone is drawn at the first call for a type, and then stays the same.
        """
        if instance_type not in self._lacking:
            draw = self._draws.draw(f"zone without {instance_type}")
            self._lacking[instance_type] = draw.choice(zones[1:3]) if draw.random() < LACKS and zones[1:] else ""
        return self._lacking[instance_type]

    def check(self, instance_type: str, zone: str, zones: Sequence[str]) -> None:
        """Raise EC2's error if a zone lacks a type, or has no capacity for another instance of it.

        `zones` are the region's zones. Each call counts as a launch. It may start a shortage, at random, and uses up
        capacity during one.
        """
        others = ", ".join(each for each in zones if each != zone)
        if self.lacking(instance_type, zones) == zone:
            raise EC2ClientError(
                instance_choice.UNSUPPORTED,
                f"Your requested instance type ({instance_type}) is not supported in your requested Availability Zone "
                f"({zone}). Please retry your request by not specifying an Availability Zone or choosing {others}.",
            )
        if not self._has_room(instance_type, zone):
            raise EC2ClientError(
                instance_choice.NO_CAPACITY,
                f"We currently do not have sufficient {instance_type} capacity in the Availability Zone you requested "
                f"({zone}). Our system will be working on provisioning additional capacity. You can currently get "
                f"{instance_type} capacity by not specifying an Availability Zone in your request or choosing "
                f"{others}.",
            )

    def _has_room(self, instance_type: str, zone: str) -> bool:
        """Return whether a pool has capacity for another instance. The call may start a shortage, at random.

        During a shortage, each call uses up one of the instances that the pool still provides.
        """
        now = self._clock()
        shortage = self._shortages.get((instance_type, zone))
        if shortage is None or now >= shortage.ends_at + CALM_S:
            shortage = self._shortages[instance_type, zone] = self._next(instance_type, zone, now)
        if now >= shortage.ends_at:
            return True
        shortage.left -= 1
        return shortage.left >= 0

    def _next(self, instance_type: str, zone: str, now: float) -> _Shortage:
        """Draw whether a pool becomes short now; return its new state."""
        draw = self._draws.draw(f"capacity of {instance_type} in {zone}")
        if draw.random() >= SHORTAGES:
            return _Shortage(ends_at=now, left=0)
        return _Shortage(ends_at=now + draw.uniform(*SHORT_S), left=draw.randint(0, MAX_IN_SHORTAGE))
