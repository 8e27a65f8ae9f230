"""Every price that a cluster has, each with its date and source, as rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final

from cluster.aws.price_store import PriceStore
from cluster.aws.price_table import shipped
from cluster.aws.service_prices import ITEMS
from cluster.terminal.tables import Table

UNKNOWN: Final = "unknown"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PriceRow:
    """One price."""

    what: str
    usd: float | None
    """None where it is unknown."""
    unit: str
    date: str
    source: str


def price_rows(
    instance_types: Iterable[str], on_demand: Mapping[str, float | None], dated: str, store: PriceStore, today: str
) -> list[PriceRow]:
    """Return the prices of instances, on demand and on spot, and of services.

    `on_demand`: USD per hour; `dated`: the date of the table where one of them is from it.
    """
    refreshed, table = store.load(), shipped().get(store.region)
    rows = []
    for kind in dict.fromkeys(instance_types):
        price = on_demand.get(kind)
        tabled = table is not None and bool(dated) and price is not None and table.usd_per_hour.get(kind) == price
        date, source = (
            (table.date, table.source) if tabled and table else (today, "AWS's price list, asked within a day")
        )
        known = price is not None
        rows.append(
            PriceRow(
                what=f"{kind}, on demand",
                usd=price,
                unit="hour",
                date=date if known else "",
                source=source if known else "",
            )
        )
        spot = refreshed.spot.get(kind)
        rows.append(
            PriceRow(
                what=f"{kind}, spot",
                usd=spot.usd_per_hour if spot else None,
                unit="hour",
                date=refreshed.date if spot else "",
                source=f"EC2's spot price history, {spot.zone}" if spot else "",
            )
        )
    for item, words in ITEMS.items():
        found = store.service(item)
        rows.append(
            PriceRow(
                what=words,
                usd=found.usd if found else None,
                unit=found.unit if found else "",
                date=found.date if found else "",
                source=found.source if found else "",
            )
        )
    return rows


def price_overview_table(region: str, rows: Iterable[PriceRow]) -> Table:
    """Build the table of prices."""
    return Table(
        title=f"prices in {region}, USD",
        columns=("what", "price", "for each", "of", "source"),
        rows=tuple(
            (row.what, UNKNOWN if row.usd is None else f"{row.usd:.6g}", row.unit, row.date, row.source) for row in rows
        ),
        footer=("`fab prices --refresh` asks AWS for today's",),
        expendable=("source",),
    )


def price_document(region: str, rows: Iterable[PriceRow]) -> dict[str, Any]:
    """Return the prices as JSON values."""
    return {"region": region, "currency": "USD", "prices": [dataclasses.asdict(row) for row in rows]}
