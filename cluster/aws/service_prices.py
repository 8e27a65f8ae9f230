"""List prices of what a cluster uses beside instances: gateways, addresses, storage, traffic. They ship as a table.

Only what is in the table is known: no price is carried over from another region, and a missing one is None, never 0.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from cluster.aws.price_table import PriceTableError

TABLE: Final = Path(__file__).with_suffix(".csv")
HEADER: Final = "region,item,usd,unit,date,source"
EVERY_REGION: Final = "*"

NAT_GATEWAY: Final = "nat-gateway"
NAT_TRAFFIC: Final = "nat-gateway-traffic"
PUBLIC_IPV4: Final = "public-ipv4"
EBS: Final = "ebs-gp3"
EFS: Final = "efs"
S3: Final = "s3"
ITEMS: Final[Mapping[str, str]] = {
    NAT_GATEWAY: "NAT gateway",
    NAT_TRAFFIC: "traffic through a NAT gateway",
    PUBLIC_IPV4: "public IPv4 address",
    EBS: "EBS volume, gp3",
    "ebs-gp3-iops": "IOPS of a gp3 volume above 3000",
    "ebs-gp3-throughput": "throughput of a gp3 volume above 125 MiB/s",
    EFS: "EFS",
    "efs-read": "reading from EFS, elastic throughput",
    "efs-write": "writing to EFS, elastic throughput",
    S3: "S3, Standard",
    "fsx-lustre": "FSx for Lustre",
    "transfer-out": "traffic to the internet",
    "transfer-zones": "traffic between zones, each direction",
}
"""What is priced, in words, in the order in which it is shown. FSx depends on its throughput; no price of it ships."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServicePrice:
    """One price."""

    usd: float
    unit: str
    """What it is for: `hour`, `GB`, `GB-month`."""
    date: str
    """Of which the source states it, or on which it was read, ISO 8601."""
    source: str


@functools.cache
def shipped_services() -> Mapping[tuple[str, str], ServicePrice]:
    """Return the prices that ship, by region and item. Raises PriceTableError for a table that is damaged."""
    try:
        lines = TABLE.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise PriceTableError(TABLE, 0, f"cannot be read ({error.strerror})") from None
    return parse_services(lines)


def parse_services(lines: Iterable[str]) -> Mapping[tuple[str, str], ServicePrice]:
    """Parse a table's lines. Raises PriceTableError naming the line that breaks its rule."""
    found: dict[tuple[str, str], ServicePrice] = {}
    for number, line in enumerate(lines, start=1):
        if number == 1:
            if line != HEADER:
                raise PriceTableError(TABLE, number, f"the columns must be {HEADER}")
            continue
        cells = line.split(",", 5)
        if len(cells) != 6 or not all(cells):
            raise PriceTableError(TABLE, number, "must have a region, item, price, unit, date and source")
        region, item, usd, unit, date, source = cells
        if item not in ITEMS:
            raise PriceTableError(TABLE, number, f"unknown item {item}; known: {', '.join(ITEMS)}")
        found[region, item] = ServicePrice(usd=_price(number, usd), unit=unit, date=date, source=source)
    return found


def _price(number: int, text: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = 0.0
    if not 0 < price < float("inf"):
        raise PriceTableError(TABLE, number, f"{text!r} is no price")
    return price


def service_price(region: str, item: str) -> ServicePrice | None:
    """Return a price in a region; None where it is unknown."""
    table = shipped_services()
    return table.get((region, item)) or table.get((EVERY_REGION, item))


def usd_of(region: str, item: str) -> float | None:
    """Return a price in a region, USD; None where it is unknown."""
    found = service_price(region, item)
    return found.usd if found else None
