"""Facts about prices: AWS's figure first, then the dated table's; no task waits long; the unknown is called unknown."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from cluster.aws.client import Aws
from cluster.aws.price_table import shipped
from cluster.aws.pricing import Prices, as_of, parse_price, shown, total_per_hour


def product(usd: str, unit: str = "Hrs") -> str:
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}}
    return json.dumps({"terms": {"OnDemand": {"T": {"priceDimensions": {"D": dimension}}}}})


class FakeAws(Aws):
    """Answer for the price list once the gate is open."""

    def __init__(self, products: list[str], *, is_open: bool = True, region: str = "eu-nowhere-1") -> None:
        super().__init__()
        self._region = region
        self.products, self.gate, self.asked = products, threading.Event(), 0
        if is_open:
            self.gate.set()

    @property
    def region(self) -> str:
        return self._region

    def client(self, service: str, *, impatient: bool = False) -> Any:
        if not impatient:
            raise AssertionError("the price list is asked once and briefly")
        return self

    def get_products(self, **_: object) -> dict[str, list[str]]:
        self.asked += 1
        assert self.gate.wait(60)
        if not self.products:
            raise ConnectionError("no network")
        return {"PriceList": self.products}


@pytest.mark.parametrize(
    ("products", "price"),
    [
        ([product("0.3400000000")], 0.34),
        ([product("0.0"), product("0.34")], 0.34),
        ([product("0.34"), product("0.34")], 0.34),
        ([product("0.34"), product("0.40")], None),
        ([product("0.34", unit="Quantity")], None),
        (["{", "[]", '{"terms": {}}', "null"], None),
        ([], None),
    ],
)
def test_a_price_is_known_only_where_the_list_names_exactly_one(products: list[str], price: float | None) -> None:
    assert parse_price(products) == price


def test_a_price_is_asked_once_a_day(tmp_path: Path) -> None:
    cache = tmp_path / "deep" / "prices.json"
    aws = FakeAws([product("0.34")])
    assert Prices(aws, cache).per_hour(["c5.2xlarge"], wait_s=60) == {"c5.2xlarge": 0.34}
    assert Prices(aws, cache).per_hour(["c5.2xlarge"], wait_s=0) == {"c5.2xlarge": 0.34}
    assert aws.asked == 1


def test_a_price_that_is_forgotten_is_asked_anew(tmp_path: Path) -> None:
    cache, aws = tmp_path / "prices.json", FakeAws([product("0.34")])
    assert Prices(aws, cache).per_hour(["c5.2xlarge"], wait_s=60) == {"c5.2xlarge": 0.34}
    aws.products = [product("0.35")]
    prices = Prices(aws, cache)
    prices.forget(["c5.2xlarge"])
    assert prices.per_hour(["c5.2xlarge"], wait_s=60) == {"c5.2xlarge": 0.35}
    assert aws.asked == 2


def test_nobody_waits_for_a_slow_list(tmp_path: Path) -> None:
    aws = FakeAws([product("0.34")], is_open=False)
    prices = Prices(aws, tmp_path / "prices.json")
    assert prices.per_hour(["c5.2xlarge"], wait_s=0.05) == {"c5.2xlarge": None}
    aws.gate.set()
    assert prices.per_hour(["c5.2xlarge"], wait_s=60) == {"c5.2xlarge": 0.34}


def test_an_unreachable_list_leaves_the_price_unknown(tmp_path: Path) -> None:
    assert Prices(FakeAws([]), tmp_path / "p.json").per_hour(["c5.2xlarge"], wait_s=60) == {"c5.2xlarge": None}


def test_an_unreachable_list_leaves_the_price_of_the_table_with_its_date(tmp_path: Path) -> None:
    prices = Prices(FakeAws([], region="us-east-1"), tmp_path / "p.json")
    table = shipped()["us-east-1"]
    known = prices.per_hour(["c5.2xlarge", "x1.unheard"], wait_s=60)
    assert known == {"c5.2xlarge": table.usd_per_hour["c5.2xlarge"], "x1.unheard": None}
    assert prices.dated(["c5.2xlarge"]) == table.date
    assert prices.dated(["x1.unheard"]) == "", "what is unknown has no date"


def test_the_date_is_that_of_the_prices_which_were_given_though_the_list_answers_later(tmp_path: Path) -> None:
    aws = FakeAws([product("0.99")], is_open=False, region="us-east-1")
    prices = Prices(aws, tmp_path / "p.json")
    table = shipped()["us-east-1"]
    assert prices.per_hour(["c5.2xlarge"], wait_s=0) == {"c5.2xlarge": table.usd_per_hour["c5.2xlarge"]}
    aws.gate.set()
    prices._threads["c5.2xlarge"].join(60)
    assert prices.dated(["c5.2xlarge"]) == table.date
    assert prices.per_hour(["c5.2xlarge"], wait_s=0) == {"c5.2xlarge": 0.99}
    assert prices.dated(["c5.2xlarge"]) == ""


def test_aws_own_price_comes_before_the_tables_and_has_no_date(tmp_path: Path) -> None:
    prices = Prices(FakeAws([product("0.99")], region="us-east-1"), tmp_path / "p.json")
    assert prices.per_hour(["c5.2xlarge"], wait_s=60) == {"c5.2xlarge": 0.99}
    assert prices.dated(["c5.2xlarge"]) == ""


def test_a_broken_cache_is_as_good_as_none(tmp_path: Path) -> None:
    cache = tmp_path / "prices.json"
    cache.write_text("[")
    assert Prices(FakeAws([product("0.34")]), cache).per_hour(["c5.2xlarge"], wait_s=60) == {"c5.2xlarge": 0.34}


def test_a_total_is_unknown_if_one_part_is() -> None:
    assert total_per_hour(["a", "a", "b"], {"a": 1.0, "b": 0.5}) == 2.5
    assert total_per_hour(["a", "b"], {"a": 1.0, "b": None}) is None
    assert total_per_hour([], {}) == 0
    assert (shown(None), shown(0.3404)) == ("unknown", "$0.340/h")
    assert (as_of("2026-07-20"), as_of("")) == (" (prices of 2026-07-20)", "")
