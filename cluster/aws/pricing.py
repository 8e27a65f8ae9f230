"""The price of instances per hour: from AWS's price list, else from the table that ships, dated; else unknown.

A price is never guessed: neither from another region nor from another type. Where no region is set, prices are those of
`client.PRICED_REGION`, and tasks say so.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.files.atomic_write import write_atomically
from cluster.aws.price_table import RegionPrices, shipped

if TYPE_CHECKING:
    from types_boto3_pricing.type_defs import FilterTypeDef

    from cluster.aws.client import Aws

CACHE_S: Final = 24 * 3600
UNKNOWN_CACHE_S: Final = 600


def cache_file(home: Path) -> Path:
    """Return the file in which prices are cached."""
    return home / ".cache" / "deepcdk" / "prices.json"


def filters(instance_type: str, region: str) -> list[FilterTypeDef]:
    """Return the filters of the price list for on-demand Linux on shared hardware."""
    wanted = {
        "instanceType": instance_type,
        "regionCode": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
    }
    return [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]


def parse_price(products: Iterable[str]) -> float | None:
    """Parse the price per hour, USD, in the PriceList of GetProducts; None unless there is exactly one."""
    found = set()
    for product in products:
        try:
            terms = json.loads(product)["terms"]["OnDemand"].values()
            for term in terms:
                for dimension in term["priceDimensions"].values():
                    price = float(dimension["pricePerUnit"]["USD"])
                    if dimension["unit"] == "Hrs" and price > 0:
                        found.add(price)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found.pop() if len(found) == 1 else None


class Prices:
    """Look prices up in the background, with a time-out for the caller."""

    def __init__(self, aws: Aws, cache: Path) -> None:
        self._aws, self._cache = aws, cache
        self._known: dict[str, float | None] = {}
        self._from_table: set[str] = set()
        """Types whose price was last given from the table."""
        self._threads: dict[str, threading.Thread] = {}

    def begin(self, instance_types: Iterable[str]) -> None:
        """Start looking up the types that are not cached."""
        stored = self._load()
        for kind in set(instance_types) - set(self._threads) - set(self._known):
            entry = stored.get(self._key(kind))
            if entry and time.time() - entry["time"] < (
                CACHE_S if entry["usd_per_hour"] is not None else UNKNOWN_CACHE_S
            ):
                self._known[kind] = entry["usd_per_hour"]
                continue
            self._threads[kind] = threading.Thread(target=self._look_up, args=(kind,), daemon=True)
            self._threads[kind].start()

    def forget(self, instance_types: Iterable[str]) -> None:
        """Have these types looked up anew, whatever is cached of them."""
        for kind in instance_types:
            self._known.pop(kind, None)
            self._threads[kind] = threading.Thread(target=self._look_up, args=(kind,), daemon=True)
            self._threads[kind].start()

    def per_hour(self, instance_types: Iterable[str], wait_s: float) -> dict[str, float | None]:
        """Return USD per hour by type: AWS's if it answers within `wait_s` seconds, else the table's, else None."""
        kinds = set(instance_types)
        self.begin(kinds)
        deadline = time.monotonic() + wait_s
        for kind in kinds & set(self._threads):
            self._threads[kind].join(timeout=max(0.0, deadline - time.monotonic()))
        given = {kind: self._known.get(kind) for kind in kinds}
        listed = self._table.usd_per_hour if self._table else {}
        taken = {kind for kind, price in given.items() if price is None and kind in listed}
        self._from_table = (self._from_table - kinds) | taken
        return {kind: listed[kind] if kind in taken else price for kind, price in given.items()}

    def dated(self, instance_types: Iterable[str]) -> str:
        """Return the date of the table where `per_hour` last took the price of one of these types from it, else ""."""
        return self._table.date if self._table and self._from_table & set(instance_types) else ""

    @property
    def _table(self) -> RegionPrices | None:
        return shipped().get(self._aws.price_region)

    def _look_up(self, kind: str) -> None:
        try:
            pricing = self._aws.client("pricing", impatient=True)
            answer = pricing.get_products(
                ServiceCode="AmazonEC2", Filters=filters(kind, self._aws.price_region), MaxResults=20
            )
            price = parse_price(answer.get("PriceList", []))
        except Exception:  # No task fails for want of a price.
            price = None
        self._known[kind] = price
        self._store(kind, price)

    def _key(self, kind: str) -> str:
        return f"{self._aws.endpoint}|{self._aws.price_region}|{kind}"

    def _load(self) -> dict[str, Any]:
        try:
            document = json.loads(self._cache.read_text(encoding="utf-8"))
            return document if isinstance(document, dict) else {}
        except (OSError, ValueError):
            return {}

    def _store(self, kind: str, price: float | None) -> None:
        with contextlib.suppress(OSError):
            self._cache.parent.mkdir(parents=True, exist_ok=True)
            document = {**self._load(), self._key(kind): {"usd_per_hour": price, "time": time.time()}}
            write_atomically(self._cache, json.dumps(document))


def total_per_hour(instance_types: Iterable[str], prices: Mapping[str, float | None]) -> float | None:
    """Return the total price of instances of these types, USD per hour; None if one is unknown."""
    each = [prices.get(kind) for kind in instance_types]
    known = [price for price in each if price is not None]
    return sum(known) if len(known) == len(each) else None


def as_of(date: str) -> str:
    """Return the words after prices of this date; nothing for today's."""
    return f" (prices of {date})" if date else ""


def shown(usd_per_hour: float | None) -> str:
    """Format a price."""
    return "unknown" if usd_per_hour is None else f"${usd_per_hour:.3f}/h"
