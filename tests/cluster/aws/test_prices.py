"""Prices: first from AWS, then from the included list. No task waits long, and unknown prices are shown as unknown."""

from __future__ import annotations

import datetime
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from cluster.aws.client import Aws
from cluster.aws.price_list import EBS, NAT_GATEWAY, Price, included_price
from cluster.aws.prices import PRICE_LIST, Prices, as_of, cheapest, parse_price, shown, total_per_hour
from cluster.errors import AwsError

NOW = datetime.datetime(2026, 11, 24, tzinfo=datetime.UTC)


def dimension(usd: str, unit: str = "Hrs", **more: str) -> dict[str, Any]:
    return {"unit": unit, "pricePerUnit": {"USD": usd}, **more}


def product(*dimensions: dict[str, Any]) -> str:
    """Return a product of the price list with these dimensions."""
    named = {f"D{number}": each for number, each in enumerate(dimensions)}
    return json.dumps({"terms": {"OnDemand": {"T": {"priceDimensions": named}}}})


HOURLY = [product(dimension("0.34"))]


class FakeAws(Aws):
    """Answer price list requests once the gate is open, and requests for EC2's spot prices."""

    def __init__(self, products: list[str], *, is_open: bool = True, region: str = "eu-nowhere-1") -> None:
        super().__init__()
        self._region = region
        self.products, self.gate, self.asked = products, threading.Event(), list[dict[str, str]]()
        self.services = {"gp3": [product(dimension("0.088", "GB-Mo"))], "fails": list[str]()}
        self.spot: list[Any] = []
        if is_open:
            self.gate.set()

    @property
    def region(self) -> str:
        return self._region

    def _client(self, service: str, *, impatient: bool) -> Any:
        if service == "ec2" and "spot" in self.services:
            raise AwsError("not allowed: ec2:DescribeSpotPriceHistory")
        return self

    def get_products(self, **given: Any) -> dict[str, list[str]]:
        wanted = {each["Field"]: each["Value"] for each in given["Filters"]}
        self.asked.append(wanted)
        if "instanceType" not in wanted:
            if "services" in self.services:
                raise AwsError("not allowed: pricing:GetProducts")
            return {"PriceList": self.services.get(wanted.get("volumeApiName", ""), [])}
        assert self.gate.wait(60)
        if not self.products:
            raise ConnectionError("no network")
        return {"PriceList": self.products}

    def get_paginator(self, _: str) -> Any:
        return self

    def paginate(self, **_: object) -> list[Any]:
        return [{"SpotPriceHistory": self.spot}]


@pytest.mark.parametrize(
    ("products", "price"),
    [
        (HOURLY, 0.34),
        ([product(dimension("0.0")), *HOURLY, *HOURLY], 0.34),
        ([*HOURLY, product(dimension("0.40"))], None),
        ([product(dimension("0.34", unit="Quantity"))], None),
        ([product(dimension("0.34", beginRange="0"), dimension("0.30", beginRange="51200"))], 0.34),
        (["{", "[]", '{"terms": {}}', "null"], None),
        ([], None),
    ],
)
def test_price_is_known_only_if_the_list_names_exactly_one(products: list[str], price: float | None) -> None:
    assert parse_price(products) == price


def test_price_is_asked_for_once_a_day(tmp_path: Path) -> None:
    cache, aws = tmp_path / "deep" / "prices.json", FakeAws(HOURLY)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()  # not when this module was imported
    found = Price(usd=0.34, unit="hour", date=today, source=PRICE_LIST)
    assert Prices(aws, cache).on_demand(["c5.2xlarge"], wait_s=60) == {"c5.2xlarge": found}
    assert Prices(aws, cache).on_demand(["c5.2xlarge"], wait_s=0) == {"c5.2xlarge": found}
    assert len(aws.asked) == 1
    document = json.loads(cache.read_text())
    (entry,) = document.values()
    entry["time"] -= 25 * 3600
    cache.write_text(json.dumps(document))
    Prices(aws, cache).on_demand(["c5.2xlarge"], wait_s=60)
    assert len(aws.asked) == 2


def test_tasks_do_not_wait_for_slow_price_list(tmp_path: Path) -> None:
    aws = FakeAws(HOURLY, is_open=False)
    prices = Prices(aws, tmp_path / "prices.json")
    assert prices.per_hour(["c5.2xlarge"], wait_s=0.05) == {"c5.2xlarge": None}
    aws.gate.set()
    assert prices.per_hour(["c5.2xlarge"], wait_s=60) == {"c5.2xlarge": 0.34}


def test_included_price_with_its_date_is_used_if_the_list_is_unreachable(tmp_path: Path) -> None:
    prices = Prices(FakeAws([], region="us-east-1"), tmp_path / "p.json")
    listed = included_price("us-east-1", "c5.2xlarge")
    assert listed
    assert prices.on_demand(["c5.2xlarge", "x1.unheard"], wait_s=60) == {"c5.2xlarge": listed, "x1.unheard": None}
    assert prices.dated(["x1.unheard", "c5.2xlarge"]) == listed.date
    assert prices.dated(["x1.unheard"]) == ""


def test_date_belongs_to_shown_price_even_if_list_answers_later(tmp_path: Path) -> None:
    aws = FakeAws([product(dimension("0.99"))], is_open=False, region="us-east-1")
    prices = Prices(aws, tmp_path / "p.json")
    assert prices.per_hour(["c5.2xlarge"], wait_s=0) == {"c5.2xlarge": 0.34}
    aws.gate.set()
    prices._threads["c5.2xlarge"].join(60)
    assert prices.dated(["c5.2xlarge"]) == "2026-07-20"
    assert prices.per_hour(["c5.2xlarge"], wait_s=0) == {"c5.2xlarge": 0.99}
    assert prices.dated(["c5.2xlarge"]) == ""


@pytest.mark.parametrize("text", ["[", "[]", '{"|eu-nowhere-1|c5.2xlarge": 3, "|eu-nowhere-1|efs": {"price": {}}}'])
def test_damaged_cache_is_ignored(text: str, tmp_path: Path) -> None:
    cache = tmp_path / "prices.json"
    cache.write_text(text)
    prices = Prices(FakeAws(HOURLY), cache)
    assert prices.per_hour(["c5.2xlarge"], wait_s=60) == {"c5.2xlarge": 0.34}
    assert prices.service("efs") is None


def test_cache_that_cannot_be_written_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    prices = Prices(FakeAws(HOURLY), tmp_path / "file" / "prices.json")
    assert prices.per_hour(["c5.2xlarge"], wait_s=60) == {"c5.2xlarge": 0.34}


def test_refreshed_prices_are_kept_by_region_and_replace_cached_and_included_ones(tmp_path: Path) -> None:
    cache, aws = tmp_path / "prices.json", FakeAws(HOURLY, region="us-east-1")
    aws.spot = [entry("c5.2xlarge", "us-east-1a", "0.12", 1)]
    before = Prices(aws, cache)
    assert before.per_hour(["c5.2xlarge"], wait_s=60) == {"c5.2xlarge": 0.34}
    assert (before.spot("c5.2xlarge"), before.service(EBS)) == (None, included_price("us-east-1", EBS))
    aws.products = [product(dimension("0.35"))]
    assert before.refresh(["c5.2xlarge"], NOW) == []
    assert before.per_hour(["c5.2xlarge"], wait_s=60) == {"c5.2xlarge": 0.35}
    after = Prices(aws, cache)
    assert after.per_hour(["c5.2xlarge"], wait_s=0) == {"c5.2xlarge": 0.35}
    spot = Price(usd=0.12, unit="hour", date="2026-11-24", source="EC2's spot price history, us-east-1a")
    assert after.spot("c5.2xlarge") == spot
    assert after.service(EBS) == Price(usd=0.088, unit="GB-month", date="2026-11-24", source=PRICE_LIST)
    assert after.service(NAT_GATEWAY) == included_price("us-east-1", NAT_GATEWAY), "the list had no price of it"
    assert {each["regionCode"] for each in aws.asked} == {"us-east-1"}
    assert Prices(FakeAws([], region="eu-west-1"), cache).spot("c5.2xlarge") is None


def test_refresh_reports_a_source_that_refused_and_fails_if_both_did(tmp_path: Path) -> None:
    aws = FakeAws(HOURLY)
    prices = Prices(aws, tmp_path / "prices.json")
    aws.services["spot"] = []
    (error,) = prices.refresh(["c5.2xlarge"], NOW)
    assert "ec2:DescribeSpotPriceHistory" in str(error)
    assert prices.service(EBS)
    aws.services["services"] = []
    with pytest.raises(AwsError, match="ec2:Describe"):
        prices.refresh(["c5.2xlarge"], NOW)


def entry(kind: str, zone: str, usd: str, days: int) -> Any:
    """Return an entry of EC2's spot price history that is this many days old."""
    age = datetime.timedelta(days=days)
    return {"InstanceType": kind, "AvailabilityZone": zone, "SpotPrice": usd, "Timestamp": NOW - age}


def test_spot_price_is_the_newest_of_the_cheapest_zone() -> None:
    history = [entry("p5", "a", "30.0", 1), entry("p5", "a", "20.0", 5), entry("p5", "b", "25.0", 2)]
    found = cheapest([*history, entry("c5", "a", "0.1", 91), entry("c6", "a", "0", 1)], NOW)
    assert {kind: (price.usd, price.source[-1]) for kind, price in found.items()} == {"p5": (25.0, "b")}


def test_total_is_unknown_if_one_part_is_unknown() -> None:
    assert total_per_hour(["a", "a", "b"], {"a": 1.0, "b": 0.5}) == 2.5
    assert total_per_hour(["a", "b"], {"a": 1.0, "b": None}) is None
    assert total_per_hour([], {}) == 0
    assert (shown(None), shown(0.3404)) == ("unknown", "$0.340/h")
    assert (as_of("2026-07-20"), as_of("")) == (" (prices of 2026-07-20)", "")
