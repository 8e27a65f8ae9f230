"""What instances cost on spot now, from EC2's history of spot prices."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from cluster.aws.client import aws_errors

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import SpotPriceTypeDef

    from cluster.aws.client import Aws

KEPT: Final = datetime.timedelta(days=90)
"""For how long EC2 keeps spot prices: what is older is no price of this account's EC2 (moto's are of 2006)."""
LINUX: Final = ("Linux/UNIX",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpotPrice:
    """The cheapest zone's price of a type."""

    usd_per_hour: float
    zone: str
    since: str
    """When the price began, ISO 8601."""


def cheapest(history: Iterable[SpotPriceTypeDef], now: datetime.datetime) -> Mapping[str, SpotPrice]:
    """Return of each type the newest price of the zone that is cheapest with its newest; without those too old."""
    newest: dict[tuple[str, str], SpotPriceTypeDef] = {}
    for entry in history:
        key = (entry["InstanceType"], entry["AvailabilityZone"])
        if now - entry["Timestamp"] <= KEPT and (key not in newest or entry["Timestamp"] > newest[key]["Timestamp"]):
            newest[key] = entry
    found: dict[str, SpotPrice] = {}
    for (kind, zone), entry in sorted(newest.items()):
        price = float(entry["SpotPrice"])
        if price > 0 and (kind not in found or price < found[kind].usd_per_hour):
            found[kind] = SpotPrice(usd_per_hour=price, zone=zone, since=entry["Timestamp"].isoformat())
    return found


def ask_spot(aws: Aws, instance_types: Iterable[str], now: datetime.datetime) -> Mapping[str, SpotPrice]:
    """Ask EC2 for the spot prices of these types now; a type without any is left out. Raises AwsError."""
    with aws_errors("asking EC2 for spot prices"):
        pages = (
            aws.client("ec2")
            .get_paginator("describe_spot_price_history")
            .paginate(
                InstanceTypes=sorted(set(instance_types)),  # type: ignore[arg-type]  # any type, where the stubs list them
                ProductDescriptions=list(LINUX),
                StartTime=now,
            )
        )
        return cheapest([entry for page in pages for entry in page["SpotPriceHistory"]], now)
