"""Facts about the table of prices: it says where each region's prices are from, and a damaged one is refused."""

from __future__ import annotations

import datetime

import pytest

from cluster.aws import price_table
from cluster.aws.price_table import PriceTableError, RegionPrices, parse, render, shipped
from cluster.aws.service_prices import NAT_GATEWAY, usd_of
from stacks.config import ClusterConfig

PRICES = {"c5.large": 0.096, "p3.2xlarge": 3.305}
ONE = RegionPrices(region="eu-west-1", date="2026-11-23", source="a list", usd_per_hour=PRICES)
TWO = RegionPrices(region="ap-south-1", date="2026-01-02", source="another, with a comma", usd_per_hour=PRICES)
ORIGIN, HEADER = "# eu-west-1 2026-11-23 a list", "region,type,usd_per_hour"


def test_what_is_written_is_read_back() -> None:
    assert parse(render([ONE, TWO]).splitlines()) == {"eu-west-1": ONE, "ap-south-1": TWO}


def test_the_shipped_prices_have_a_date_a_source_and_the_default_types() -> None:
    for region, prices in shipped().items():
        assert datetime.date.fromisoformat(prices.date) <= datetime.datetime.now(datetime.UTC).date()
        assert prices.source
        assert usd_of(region, NAT_GATEWAY), "a region's total needs the price of its NAT gateway too"
    default = ClusterConfig()
    assert {default.worker_instance_type, default.master_instance_type} <= set(shipped()["us-east-1"].usd_per_hour)


def test_the_types_of_the_records_and_of_today_have_a_price() -> None:
    known = shipped()["us-east-1"].usd_per_hour
    for kind in ("p3.16xlarge", "p4d.24xlarge", "p5.48xlarge", "g4dn.xlarge", "g5.xlarge", "g6e.xlarge", "c7g.2xlarge"):
        assert 0 < known[kind] < 1000


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        ([ORIGIN, "type,price"], "line 2: the columns must be"),
        ([ORIGIN, HEADER, "eu-west-1,c5.large"], "line 3: has 2 cells"),
        (
            [ORIGIN, HEADER, "eu-west-1,c5.large,0"],
            "line 3: '0' is no price",
        ),
        (
            [ORIGIN, HEADER, "eu-west-1,c5.large,x"],
            "line 3: 'x' is no price",
        ),
        (
            [HEADER, "eu-west-1,c5.large,1"],
            "line 2: no line above says where",
        ),
    ],
)
def test_a_damaged_table_is_refused_with_the_line(lines: list[str], rule: str) -> None:
    with pytest.raises(PriceTableError, match=rule):
        parse(lines)


def test_a_table_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_table, "TABLE", price_table.TABLE.with_name("none.csv"))
    with pytest.raises(PriceTableError, match="cannot be read"):
        shipped.__wrapped__()
