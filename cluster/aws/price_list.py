"""The included price list, for use when AWS's price list cannot be asked.

A price is never taken from another region: a price that is not in the list is unknown.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from agent.errors import unreadable
from cluster.errors import DeepcdkError

FILE: Final = Path(__file__).with_suffix(".csv")
COMMENT: Final = "# "
"""Start of the lines before the header, one per source: `# NUMBER DATE SOURCE`."""
HEADER: Final = "region,item,usd,unit,source"
EVERY_REGION: Final = "*"
HOUR: Final = "hour"

NAT_GATEWAY: Final = "nat-gateway"
NAT_TRAFFIC: Final = "nat-gateway-traffic"
PUBLIC_IPV4: Final = "public-ipv4"
ENDPOINT: Final = "interface-endpoint"
T3_CREDITS: Final = "t3-credits"
T4G_CREDITS: Final = "t4g-credits"
EBS: Final = "ebs-gp3"
EBS_IOPS: Final = "ebs-gp3-iops"
EBS_THROUGHPUT: Final = "ebs-gp3-throughput"
EFS: Final = "efs"
S3: Final = "s3"
SERVICES: Final[Mapping[str, str]] = {
    NAT_GATEWAY: "NAT gateway",
    NAT_TRAFFIC: "traffic through a NAT gateway",
    PUBLIC_IPV4: "public IPv4 address",
    ENDPOINT: "interface endpoint in one zone",
    T3_CREDITS: "vCPU of a T3 above its baseline",
    T4G_CREDITS: "vCPU of a T4g above its baseline",
    EBS: "EBS volume, gp3",
    EBS_IOPS: "IOPS of a gp3 volume above 3000",
    EBS_THROUGHPUT: "throughput of a gp3 volume above 125 MiB/s",
    EFS: "EFS",
    "efs-read": "reading from EFS, elastic throughput",
    "efs-write": "writing to EFS, elastic throughput",
    S3: "S3, Standard",
    "fsx-lustre": "FSx for Lustre",
    "transfer-out": "traffic to the internet",
    "transfer-zones": "traffic between zones, each direction",
}
"""Items that are not instance types, in display order. The list has no price of FSx, which depends on
its throughput.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Price:
    """The price of an item in one region."""

    usd: float
    unit: str
    """`hour`, `GB`, `GB-month`, ..."""
    date: str
    """Date on which the source was published or read, ISO 8601."""
    source: str


class PriceListError(DeepcdkError, ValueError):
    """Report a price list that cannot be read. Has `line`, 0 for the whole file, and `rule`."""

    def __init__(self, line: int, rule: str) -> None:
        self.line, self.rule = line, rule
        place = f"{FILE}, line {line}" if line else str(FILE)
        super().__init__(f"{place}: {rule}", remedy="restore the file with git, or install deepcdk again")


PriceList = Mapping[tuple[str, str], Price]
"""Prices by region and item."""


@functools.cache
def included() -> PriceList:
    """Return the included prices. The file is read once. Raises PriceListError."""
    try:
        return parse(FILE.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise PriceListError(0, f"cannot be read ({unreadable(error)})") from None


def included_price(region: str, item: str) -> Price | None:
    """Return the included price of an instance type or service, for the region or else for all regions.

    None if it is unknown. Raises PriceListError if the list is invalid.
    """
    return included().get((region, item)) or included().get((EVERY_REGION, item))


def parse(lines: Iterable[str]) -> PriceList:
    """Parse the lines of a price list: comments with sources, HEADER, then a price per line.

    Raises PriceListError for the first invalid line.
    """
    sources: dict[str, tuple[str, str]] = {}
    found: dict[tuple[str, str], Price] = {}
    header = False
    for number, line in enumerate(lines, start=1):
        try:
            if header:
                region, item, usd, unit, source = line.split(",")
                date, words = sources[source]
                if not 0 < float(usd) < float("inf"):
                    raise PriceListError(number, f"{usd} is not a price")
                if item not in SERVICES and "." not in item:
                    raise PriceListError(number, f"unknown item {item}; known: {', '.join(SERVICES)}")
                found[region, item] = Price(usd=float(usd), unit=unit, date=date, source=words)
            elif line.startswith(COMMENT):
                source, date, words = line.removeprefix(COMMENT).split(" ", 2)
                sources[source] = date, words
            elif line == HEADER:
                header = True
            else:
                raise PriceListError(number, f"the columns must be {HEADER}")
        except (KeyError, ValueError) as error:
            if isinstance(error, PriceListError):
                raise
            raise PriceListError(number, f"{line!r} must have a region, item, price, unit and known source") from None
    return found


def render(prices: PriceList) -> str:
    """Return the text of a price list, sorted by region and item."""
    rows = sorted(prices.items())
    sources = {source: n for n, source in enumerate(dict.fromkeys((price.date, price.source) for _, price in rows), 1)}
    lines = [
        f"{region},{item},{price.usd:.6g},{price.unit},{sources[price.date, price.source]}"
        for (region, item), price in rows
    ]
    return "\n".join([*(f"{COMMENT}{n} {date} {words}" for (date, words), n in sources.items()), HEADER, *lines]) + "\n"
