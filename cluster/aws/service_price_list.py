"""Prices of services from AWS's price list. The filters were not tried on AWS: two prices for one are none."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from cluster.aws.client import aws_errors
from cluster.aws.service_prices import EBS, EFS, NAT_GATEWAY, NAT_TRAFFIC, S3, ServicePrice

if TYPE_CHECKING:
    from types_boto3_pricing.type_defs import FilterTypeDef

    from cluster.aws.client import Aws

PRICE_LIST: Final = "AWS's price list"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Query:
    """How the price list is asked for one item."""

    service: str
    attributes: tuple[tuple[str, str], ...]
    unit: str
    """As the list has it."""
    shown_unit: str

    def filters(self, region: str) -> list[FilterTypeDef]:
        """Return the filters for a region."""
        wanted = (*self.attributes, ("regionCode", region))
        return [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted]


_NAT: Final = (("productFamily", "NAT Gateway"), ("group", "NGW:NatGateway"))
QUERIES: Final[Mapping[str, Query]] = {
    NAT_GATEWAY: Query(service="AmazonEC2", attributes=_NAT, unit="Hrs", shown_unit="hour"),
    NAT_TRAFFIC: Query(service="AmazonEC2", attributes=_NAT, unit="GB", shown_unit="GB"),
    EBS: Query(
        service="AmazonEC2",
        attributes=(("productFamily", "Storage"), ("volumeApiName", "gp3")),
        unit="GB-Mo",
        shown_unit="GB-month",
    ),
    EFS: Query(
        service="AmazonEFS",
        attributes=(("productFamily", "Storage"), ("storageClass", "General Purpose")),
        unit="GB-Mo",
        shown_unit="GB-month",
    ),
    S3: Query(
        service="AmazonS3",
        attributes=(("productFamily", "Storage"), ("storageClass", "General Purpose"), ("volumeType", "Standard")),
        unit="GB-Mo",
        shown_unit="GB-month",
    ),
}


def parse_service_price(products: Iterable[str], unit: str) -> float | None:
    """Parse the price for a unit, USD, for the first amount where it falls with more; None unless exactly one."""
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


def ask_services(aws: Aws, region: str, today: str) -> Mapping[str, ServicePrice]:
    """Ask the price list for each item that it is asked for; those without exactly one price are left out.

    Raises AwsError.
    """
    found = {}
    for item, query in QUERIES.items():
        with aws_errors(f"asking the price list for {item}"):
            answer = aws.client("pricing").get_products(
                ServiceCode=query.service, Filters=query.filters(region), MaxResults=100
            )
        price = parse_service_price(answer.get("PriceList", []), query.unit)
        if price is not None:
            found[item] = ServicePrice(usd=price, unit=query.shown_unit, date=today, source=PRICE_LIST)
    return found
