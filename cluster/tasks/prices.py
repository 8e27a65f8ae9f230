"""The task that shows prices and can refresh them from AWS."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from cluster.aws.price_list import SERVICES, Price
from cluster.cli import PROJECT
from cluster.cli.task import Json, Set, task
from cluster.session import Session
from cluster.terminal.output import print_note, print_result
from cluster.terminal.status_line import doing

if TYPE_CHECKING:
    from cluster.aws.prices import Prices

WAIT_S = 5.0


@task()
def prices(
    set_: Set = (),
    instance: Annotated[str, "more instance types, comma-separated; default: only the cluster's types"] = "",
    refresh: Annotated[bool, "ask AWS for its price list, and EC2 for the history of spot prices"] = False,
    json: Json = False,
) -> None:
    """
    Show the prices of instances, storage, gateways and traffic, with date and source.

    Example: fab prices --instance p4d.24xlarge,p5.48xlarge --refresh
    """
    from cluster.terminal.tables import Table, print_table

    session = Session(PROJECT, set_)
    config, region = session.config, session.aws.price_region
    types = [config.master_instance_type, *config.worker_types]
    types += [word.strip() for word in instance.split(",") if word.strip()]
    if refresh:
        with doing("asking AWS for prices"):
            errors = session.prices.refresh(types, datetime.datetime.now(datetime.UTC))
        for error in errors:
            print_note(f"prices not refreshed: {error}")
    found = every_price(session.prices, types, WAIT_S if refresh else 0.0)
    if json:
        rows = [{"what": what, **(dataclasses.asdict(price) if price else UNKNOWN)} for what, price in found.items()]
        print_result({"region": region, "currency": "USD", "prices": rows}, json=True)
        return
    if not session.aws.region:
        print_note(f"no AWS region is set: these are prices of {region}; for another region, set AWS_REGION")
    print_table(
        Table(
            title=f"prices in {region}, USD",
            columns=("item", "price", "unit", "date", "source"),
            rows=tuple(
                (what, f"{price.usd:.6g}", price.unit, price.date, price.source)
                if price
                else (what, "unknown", "", "", "")
                for what, price in found.items()
            ),
            footer=("run `fab prices --refresh` for current prices",),
            expendable=("source",),
        )
    )


UNKNOWN = {"usd": None, "unit": "", "date": "", "source": ""}


def every_price(prices: Prices, instance_types: Sequence[str], wait_s: float) -> Mapping[str, Price | None]:
    """Return prices by their description: of these instance types, on demand and spot, and of all services.

    An unknown price is None. `wait_s` is the maximum wait for AWS's price list.
    """
    on_demand = prices.on_demand(instance_types, wait_s)
    found: dict[str, Price | None] = {}
    for kind in instance_types:
        found[f"{kind}, on demand"] = on_demand[kind]
        found[f"{kind}, spot"] = prices.spot(kind)
    return found | {words: prices.service(item) for item, words in SERVICES.items()}
