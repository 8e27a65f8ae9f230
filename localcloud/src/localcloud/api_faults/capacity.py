"""Capacity that comes in parts, or not at all for a while, and a zone that does not have a type.

EC2 user guide, "Troubleshoot instance launch issues" (`InsufficientInstanceCapacity`); EC2 API reference, "Error codes"
(`Unsupported`) and DescribeInstanceTypeOfferings. A group records the failure as an activity, tries its other types and
zones, and then again.
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
"""How often a pool, a type in a zone, is short at a launch that comes after CALM_S."""
SHORT_S: Final = (5.0, 30.0)
MOST_IN_SHORTAGE: Final = 1
"""How many instances there are at most before a short pool is empty."""
CALM_S: Final = 60.0
"""For so long after a shortage, or a launch without one, a pool has room."""
LACKS: Final = 1 / 3
"""How often a zone, the second or third of the region, lacks a type. The first has all: a group may have it alone."""


@dataclasses.dataclass(kw_only=True)
class _Shortage:
    ends_at: float
    left: int


class Capacity:
    """Decide for which launches there is room."""

    def __init__(self, draws: Draws, clock: Callable[[], float] = time.monotonic) -> None:
        self._draws, self._clock = draws, clock
        self._shortages: dict[tuple[str, str], _Shortage] = {}
        self._lacking: dict[str, str] = {}

    def attach(self, ec2: Any) -> None:
        """Limit the launches of this backend's groups, and what it offers; a reset of moto ends it."""
        zones = [zone.name for zone in ec2.describe_availability_zones()]
        instance_choice.limit_pools(ec2, lambda instance_type, zone: self.check(instance_type, zone, zones))
        original = ec2.describe_instance_type_offerings

        def describe_instance_type_offerings(*args: Any, **kwargs: Any) -> list[Any]:
            offered = original(*args, **kwargs)
            return [each for each in offered if self.lacking(each["InstanceType"], zones) != each["Location"]]

        replace(ec2, "describe_instance_type_offerings", describe_instance_type_offerings)

    def lacking(self, instance_type: str, zones: Sequence[str]) -> str:
        """Return the zone that lacks a type; empty where all have it."""
        if instance_type not in self._lacking:
            draw = self._draws.draw(f"zone without {instance_type}")
            self._lacking[instance_type] = draw.choice(zones[1:3]) if draw.random() < LACKS and zones[1:] else ""
        return self._lacking[instance_type]

    def check(self, instance_type: str, zone: str, zones: Sequence[str]) -> None:
        """Raise EC2's error where there is no room for one more instance."""
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
        now = self._clock()
        shortage = self._shortages.get((instance_type, zone))
        if shortage is None or now >= shortage.ends_at + CALM_S:
            shortage = self._shortages[instance_type, zone] = self._next(instance_type, zone, now)
        if now >= shortage.ends_at:
            return True
        shortage.left -= 1
        return shortage.left >= 0

    def _next(self, instance_type: str, zone: str, now: float) -> _Shortage:
        draw = self._draws.draw(f"capacity of {instance_type} in {zone}")
        if draw.random() >= SHORTAGES:
            return _Shortage(ends_at=now, left=0)
        return _Shortage(ends_at=now + draw.uniform(*SHORT_S), left=draw.randint(0, MOST_IN_SHORTAGE))
