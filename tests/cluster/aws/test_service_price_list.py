"""Facts about prices of services in the price list. The answers have the shape that AWS documents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster.aws.client import Aws
from cluster.aws.service_price_list import QUERIES, ask_services, parse_service_price
from cluster.aws.service_prices import EBS, ITEMS, NAT_GATEWAY


def product(*dimensions: dict[str, Any]) -> str:
    """Return a product with these dimensions of its price."""
    named = {f"D{number}": dimension for number, dimension in enumerate(dimensions)}
    return json.dumps({"terms": {"OnDemand": {"T": {"priceDimensions": named}}}})


def dimension(usd: str, unit: str, **more: str) -> dict[str, Any]:
    """Return one dimension."""
    return {"unit": unit, "pricePerUnit": {"USD": usd}, **more}


def test_the_price_of_the_first_amount_counts_where_it_falls_with_more() -> None:
    storage = product(
        dimension("0.0230000000", "GB-Mo", beginRange="0", endRange="51200"),
        dimension("0.0220000000", "GB-Mo", beginRange="51200", endRange="512000"),
    )
    assert parse_service_price([storage], "GB-Mo") == 0.023


@pytest.mark.parametrize(
    "products",
    [
        [product(dimension("0.08", "GB-Mo")), product(dimension("0.1", "GB-Mo"))],
        [product(dimension("0", "GB-Mo"))],
        [product(dimension("0.08", "Hrs"))],
        ["{", "[]", "null", '{"terms": {}}'],
        [],
    ],
)
def test_anything_but_exactly_one_price_is_none(products: list[str]) -> None:
    assert parse_service_price(products, "GB-Mo") is None


def test_each_item_is_asked_for_in_its_region_and_what_has_no_price_is_left_out() -> None:
    class PriceList(Aws):
        def __init__(self) -> None:
            super().__init__()
            self.asked: list[tuple[str, dict[str, str]]] = []

        def client(self, service: str, *, impatient: bool = False) -> Any:
            assert service == "pricing"
            return self

        def get_products(self, **words: Any) -> dict[str, list[str]]:
            found = {each["Field"]: each["Value"] for each in words["Filters"]}
            self.asked.append((words["ServiceCode"], found))
            if found.get("volumeApiName") == "gp3":
                return {"PriceList": [product(dimension("0.088", "GB-Mo"))]}
            if found["productFamily"] == "NAT Gateway":
                return {"PriceList": [product(dimension("0.048", "Hrs")), product(dimension("0.05", "GB"))]}
            return {"PriceList": []}

    aws = PriceList()
    found = ask_services(aws, "eu-west-1", "2026-11-24")
    assert {item: price.usd for item, price in found.items()} == {
        EBS: 0.088,
        NAT_GATEWAY: 0.048,
        "nat-gateway-traffic": 0.05,
    }
    assert {price.date for price in found.values()} == {"2026-11-24"}
    assert all(attributes["regionCode"] == "eu-west-1" for _, attributes in aws.asked)
    assert set(QUERIES) < set(ITEMS)
