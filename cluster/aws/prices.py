"""Prices of instances and services, from AWS's price list or else the included one. They are cached on the laptop.

On-demand prices of instances are requested in the background when a task needs them. Spot prices and prices of services
are requested by `fab prices --refresh`. If no region is set, the prices are those of `client.PRICED_REGION`, and tasks
say so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.files.atomic_write import write_atomically
from agent.files.file_lock import file_lock
from cluster.aws.client import entries
from cluster.aws.errors import aws_errors
from cluster.aws.price_list import EBS, EFS, ENDPOINT, HOUR, NAT_GATEWAY, NAT_TRAFFIC, S3, Price, included_price
from cluster.errors import AwsError

if TYPE_CHECKING:
    from types_boto3_pricing.type_defs import FilterTypeDef

    from cluster.aws.client import Aws

CACHE_S: Final = 24 * 3600
UNKNOWN_CACHE_S: Final = 600
PRICE_LIST: Final = "AWS's price list"
SPOT_HISTORY: Final = datetime.timedelta(days=90)
"""How long EC2 keeps spot prices. moto's prices are from 2006 and are ignored."""

INSTANCES: Final = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}
"""Attributes in the price list of on-demand instances on shared hardware."""
_NAT: Final = {"productFamily": "NAT Gateway", "group": "NGW:NatGateway"}
_ENDPOINT: Final = {"productFamily": "VpcEndpoint", "endpointType": "PrivateLink"}
_STORAGE: Final = {"productFamily": "Storage"}
QUERIES: Final[Mapping[str, tuple[str, Mapping[str, str], str]]] = {
    NAT_GATEWAY: ("AmazonEC2", _NAT, "Hrs"),
    NAT_TRAFFIC: ("AmazonEC2", _NAT, "GB"),
    ENDPOINT: ("AmazonVPC", _ENDPOINT, "Hrs"),
    EBS: ("AmazonEC2", {**_STORAGE, "volumeApiName": "gp3"}, "GB-Mo"),
    EFS: ("AmazonEFS", {**_STORAGE, "storageClass": "General Purpose"}, "GB-Mo"),
    S3: ("AmazonS3", {**_STORAGE, "storageClass": "General Purpose", "volumeType": "Standard"}, "GB-Mo"),
}
"""Service code, attributes and unit in the price list, by item. Not tested on AWS."""
_UNITS: Final = {"Hrs": HOUR, "GB": "GB", "GB-Mo": "GB-month"}


def cache_file(home: Path) -> Path:
    """Return the path of the file where prices are cached."""
    return home / ".cache" / "deepcdk" / "prices.json"


def filters(attributes: Mapping[str, str], region: str) -> list[FilterTypeDef]:
    """Return the filters of the price list for products with these attributes in a region."""
    wanted = {**attributes, "regionCode": region}
    return [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]


def parse_price(products: Iterable[str], unit: str = "Hrs") -> float | None:
    """Return the price for a unit, USD, from the PriceList of GetProducts; None unless there is exactly one price.

    `products` are JSON documents; malformed ones are skipped. If the price depends on the amount, the price of the
    first amount is used.
    """
    found = set()
    for product in products:
        try:
            for term in json.loads(product)["terms"]["OnDemand"].values():
                for dimension in term["priceDimensions"].values():
                    price = float(dimension["pricePerUnit"]["USD"])
                    if dimension["unit"] == unit and price > 0 and dimension.get("beginRange", "0") == "0":
                        found.add(price)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found.pop() if len(found) == 1 else None


class Prices:
    """Look up prices in the region of the tasks: AWS's, or else those of the included list.

    AWS's prices are kept in the file `cache` for later commands.
    """

    def __init__(self, aws: Aws, cache: Path) -> None:
        self._aws, self._cache = aws, cache
        self._known: dict[str, Price | None] = {}
        """On-demand prices from AWS, by instance type."""
        self._shown: dict[str, Price | None] = {}
        """Prices that `on_demand` last returned."""
        self._threads: dict[str, threading.Thread] = {}
        self._storing = threading.Lock()

    def begin(self, instance_types: Iterable[str]) -> None:
        """Start to request the on-demand prices that are neither cached nor requested yet, each in a thread.

        Returns immediately.
        """
        stored = self._load()
        for kind in set(instance_types) - set(self._threads) - set(self._known):
            with contextlib.suppress(KeyError, TypeError):  # the cache is damaged or from another version
                entry = stored[self._key(kind)]
                price = Price(**entry["price"]) if entry["price"] else None
                if time.time() - entry["time"] < (CACHE_S if price else UNKNOWN_CACHE_S):
                    self._known[kind] = price
                    continue
            self._start(kind)

    def on_demand(self, instance_types: Iterable[str], wait_s: float) -> dict[str, Price | None]:
        """Return the price of each type: AWS's, else the included one; None if both are unknown.

        Waits up to `wait_s` seconds in total for prices that are not cached. Later answers are cached for later calls.
        """
        kinds = set(instance_types)
        self.begin(kinds)
        deadline = time.monotonic() + wait_s
        for kind in kinds & set(self._threads):
            self._threads[kind].join(timeout=max(0.0, deadline - time.monotonic()))
        found = {kind: self._known.get(kind) or self._included(kind) for kind in kinds}
        self._shown |= found
        return found

    def per_hour(self, instance_types: Iterable[str], wait_s: float) -> dict[str, float | None]:
        """Return the on-demand price of each type, USD per hour, as `on_demand` does; None if it is unknown."""
        return {kind: price.usd if price else None for kind, price in self.on_demand(instance_types, wait_s).items()}

    def dated(self, instance_types: Iterable[str]) -> str:
        """Return the included price list's date if `on_demand` last used the list for one of these types. Else ""."""
        shown = (price for kind in instance_types if (price := self._shown.get(kind)) == self._included(kind) and price)
        return next((price.date for price in shown), "")

    def spot(self, instance_type: str) -> Price | None:
        """Return the cached spot price of a type, however old; None if no refresh has returned one."""
        return self._refreshed(_spot_item(instance_type))

    def service(self, item: str) -> Price | None:
        """Return the cached price of an item in `price_list.SERVICES`, however old, or else the included price.

        None if both are unknown.
        """
        return self._refreshed(item) or self._included(item)

    def refresh(self, instance_types: Iterable[str], now: datetime.datetime) -> list[AwsError]:
        """Request all prices from AWS and cache them. Return the errors of the sources that failed.

        The sources are EC2's spot prices and the price list of services. Raises AwsError if both failed. On-demand
        prices are requested in threads that may outlast this call, and their errors are ignored. `now` dates the
        prices.
        """
        kinds, found, errors = set(instance_types), dict[str, Price | None](), list[AwsError]()
        for kind in kinds:
            self._known.pop(kind, None)
            self._start(kind)
        try:
            found |= self._ask_spot(kinds, now)
        except AwsError as error:
            errors.append(error)
        try:
            found |= self._ask_services(now)
        except AwsError as error:
            errors.append(error)
        if len(errors) == 2:
            raise errors[0]
        self._store(found)
        return errors

    def _included(self, item: str) -> Price | None:
        return included_price(self._aws.price_region, item)

    def _start(self, kind: str) -> None:
        self._threads[kind] = threading.Thread(target=self._ask_on_demand, args=(kind,), daemon=True)
        self._threads[kind].start()

    def _ask_on_demand(self, kind: str) -> None:
        """Request the on-demand price of a type and cache it. If AWS does not return a price, None is cached."""
        price = None
        with contextlib.suppress(Exception):  # a missing price must not stop a task
            pricing = self._aws.impatient("pricing")
            wanted = filters({"instanceType": kind, **INSTANCES}, self._aws.price_region)
            answer = pricing.get_products(ServiceCode="AmazonEC2", Filters=wanted, MaxResults=20)
            usd = parse_price(answer.get("PriceList", []))
            today = datetime.datetime.now(datetime.UTC).date().isoformat()
            price = Price(usd=usd, unit=HOUR, date=today, source=PRICE_LIST) if usd else None
        self._known[kind] = price
        self._store({kind: price})

    def _ask_services(self, now: datetime.datetime) -> dict[str, Price | None]:
        """Request the prices of services from AWS's price list; return them by item. Raises AwsError.

        An item is missing in the result unless AWS returns exactly one price. `now` dates the prices.
        """
        found: dict[str, Price | None] = {}
        for item, (service, attributes, unit) in QUERIES.items():
            with aws_errors(f"asking the price list for {item}"):
                answer = self._aws.client("pricing").get_products(
                    ServiceCode=service, Filters=filters(attributes, self._aws.price_region), MaxResults=100
                )
            if usd := parse_price(answer.get("PriceList", []), unit):
                found[item] = Price(usd=usd, unit=_UNITS[unit], date=now.date().isoformat(), source=PRICE_LIST)
        return found

    def _ask_spot(self, instance_types: Iterable[str], now: datetime.datetime) -> dict[str, Price | None]:
        """Request the current spot prices of types; return each type's price in its cheapest zone.

        The keys of the result are the types' names in the cache (`_spot_item`). A type without a recent price in EC2's
        history is missing in the result. `now` dates the prices. Raises AwsError.
        """
        with aws_errors("asking EC2 for spot prices"):
            history = entries(
                self._aws.client("ec2"),
                "describe_spot_price_history",
                "SpotPriceHistory",
                InstanceTypes=sorted(instance_types),
                ProductDescriptions=["Linux/UNIX"],
                StartTime=now,
            )
        return {_spot_item(kind): price for kind, price in cheapest(history, now).items()}

    def _key(self, item: str) -> str:
        return f"{self._aws.endpoint}|{self._aws.price_region}|{item}"

    def _refreshed(self, item: str) -> Price | None:
        try:
            return Price(**self._load()[self._key(item)]["price"])
        except (KeyError, TypeError):
            return None

    def _load(self) -> dict[str, Any]:
        try:
            document = json.loads(self._cache.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return document if isinstance(document, dict) else {}

    def _store(self, prices: Mapping[str, Price | None]) -> None:
        """Add prices to the cache. Does nothing if the file cannot be written."""
        now = time.time()
        new = {
            self._key(item): {"price": price and dataclasses.asdict(price), "time": now}
            for item, price in prices.items()
        }
        with self._storing, contextlib.suppress(OSError), file_lock(self._cache.with_suffix(".lock")):
            write_atomically(self._cache, json.dumps({**self._load(), **new}))


def _spot_item(instance_type: str) -> str:
    return f"{instance_type}, spot"


def cheapest(history: Iterable[Mapping[str, Any]], now: datetime.datetime) -> Mapping[str, Price]:
    """Return the newest spot price of each type in its cheapest zone, from the entries of DescribeSpotPriceHistory.

    Entries older than SPOT_HISTORY are skipped.
    """
    newest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for entry in sorted(history, key=lambda each: each["Timestamp"]):
        if now - entry["Timestamp"] <= SPOT_HISTORY and float(entry["SpotPrice"]) > 0:
            newest[entry["InstanceType"], entry["AvailabilityZone"]] = entry
    found: dict[str, Price] = {}
    for (kind, zone), entry in sorted(newest.items()):
        usd = float(entry["SpotPrice"])
        if kind not in found or usd < found[kind].usd:
            source = f"EC2's spot price history, {zone}"
            found[kind] = Price(usd=usd, unit=HOUR, date=now.date().isoformat(), source=source)
    return found


def total_per_hour(names: Iterable[str], prices: Mapping[str, float | None]) -> float | None:
    """Return the sum of the prices of these names, USD per hour; None if one is unknown. A repeated name
    counts again.
    """
    each = [prices.get(name) for name in names]
    known = [price for price in each if price is not None]
    return sum(known) if len(known) == len(each) else None


def as_of(date: str) -> str:
    """Return ` (prices of DATE)`, to add after prices. `date` is the result of `Prices.dated`; for "", return ""."""
    return f" (prices of {date})" if date else ""


def shown(usd_per_hour: float | None) -> str:
    """Format a price in USD per hour; None is "unknown"."""
    return "unknown" if usd_per_hour is None else f"${usd_per_hour:.3f}/h"
