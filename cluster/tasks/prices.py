"""The task that shows prices, and asks AWS for today's."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from cluster.cli.process import PROJECT
from cluster.cli.task import Json, Set, task
from cluster.errors import AwsError
from cluster.session import Session
from cluster.terminal.output import print_note, print_result
from cluster.terminal.status_line import doing

T = TypeVar("T")
WAIT_S = 5.0


@task()
def prices(
    set_: Set = (),
    instance: Annotated[str, "further instance types, with commas between; default: the cluster's alone"] = "",
    refresh: Annotated[bool, "ask AWS: the price list, and EC2's history of spot prices"] = False,
    json: Json = False,
) -> None:
    """
    Show what instances, storage, gateways and traffic cost, each with its date and source; unknown where it is unknown.

    Example: fab prices --instance p4d.24xlarge,p5.48xlarge --refresh
    """
    from cluster.aws import price_overview
    from cluster.terminal.tables import print_table

    session = Session(PROJECT, set_)
    config = session.config
    types = [config.master_instance_type, *config.worker_types]
    types += [word.strip() for word in instance.split(",") if word.strip()]
    now = datetime.datetime.now(datetime.UTC)
    if refresh:
        refresh_prices(session, types, now)
    on_demand = session.prices.per_hour(types, WAIT_S if refresh else 0.0)
    dated, today = session.prices.dated(types), now.date().isoformat()
    rows = price_overview.price_rows(types, on_demand, dated, session.price_store, today)
    if json:
        print_result(price_overview.price_document(session.aws.price_region, rows), json=True)
        return
    if not session.aws.region:
        print_note(f"no AWS region is set: these are prices of {session.aws.price_region}")
    print_table(price_overview.price_overview_table(session.aws.price_region, rows))


def refresh_prices(session: Session, types: Sequence[str], now: datetime.datetime) -> None:
    """Ask AWS for prices, and keep them. What one source refuses is noted; AwsError where all of them do."""
    from cluster.aws.price_store import Refreshed
    from cluster.aws.service_price_list import ask_services
    from cluster.aws.spot_prices import ask_spot

    today = now.date().isoformat()
    session.prices.forget(types)
    with doing("asking AWS for prices"):
        spot, no_spot = _attempt(lambda: ask_spot(session.aws, types, now))
        services, no_services = _attempt(lambda: ask_services(session.aws, session.aws.price_region, today))
    if no_spot and no_services:
        raise no_spot
    for error in filter(None, (no_spot, no_services)):
        print_note(f"not refreshed: {error}")
    before = session.price_store.load()
    session.price_store.save(
        Refreshed(date=today, spot={**before.spot, **(spot or {})}, services={**before.services, **(services or {})})
    )


def _attempt(ask: Callable[[], T]) -> tuple[T | None, AwsError | None]:
    try:
        return ask(), None
    except AwsError as error:
        return None, error
