"""The status of a deployed cluster as a table and as JSON: its nodes, their prices, the limits on the workers."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

from cluster.aws import worker_limits
from cluster.aws.inventory import Inventory
from cluster.aws.prices import Prices, as_of, shown, total_per_hour
from cluster.aws.worker_limits import Limit
from cluster.terminal.tables import Table, print_table
from cluster.terminal.units import duration


def status_table(
    inventory: Inventory, prices: Mapping[str, float | None], now: datetime.datetime, dated: str = ""
) -> Table:
    """Build the table of a cluster's nodes, with their age, prices, and the total cost below.

    `prices` are in USD per hour by instance type, None if unknown. `now` is the time for the ages. `dated` is the date
    of the prices; "" if they are today's.
    """
    rows = tuple(
        (
            i.role,
            i.id,
            f"{i.type} (spot)" if i.spot else i.type,
            i.state if i.lifecycle == "InService" else f"{i.state} ({i.lifecycle})",
            i.private_ip,
            i.public_ip or "-",
            i.zone,
            duration((now - i.launched).total_seconds()),
            _at_most(prices.get(i.type), spot=i.spot),
        )
        for i in inventory.instances
    )
    total = total_per_hour([i.type for i in inventory.instances], prices)
    workers = len(inventory.workers)
    on_spot = any(i.spot for i in inventory.instances)
    return Table(
        title=f"stack {inventory.stack.name}: {inventory.stack.status}",
        columns=("role", "instance", "type", "state", "private", "public", "zone", "age", "price"),
        rows=rows,
        footer=(
            f"workers: {workers} of {inventory.desired_workers} wanted, at most {inventory.max_workers}",
            f"instances together: {_at_most(total, spot=on_spot)}" + _spent(inventory, prices, now) + as_of(dated),
        ),
        expendable=("zone", "type", "private"),
    )


def _at_most(usd_per_hour: float | None, *, spot: bool) -> str:
    """Format an on-demand price. With `spot`, show it as a maximum: a spot instance costs at most this."""
    return f"{'at most ' if spot and usd_per_hour is not None else ''}{shown(usd_per_hour)}"


def usd_so_far(inventory: Inventory, prices: Mapping[str, float | None], now: datetime.datetime) -> float | None:
    """Return the cost of the current instances from their launch to `now`, in USD; None if a price is unknown.

    `prices` are on-demand prices in USD per hour by instance type. Terminated instances, storage and the NAT gateway
    are not included.
    """
    total = 0.0
    for instance in inventory.instances:
        price = prices.get(instance.type)
        if price is None:
            return None
        total += price * max(0.0, (now - instance.launched).total_seconds()) / 3600
    return total


def _spent(inventory: Inventory, prices: Mapping[str, float | None], now: datetime.datetime) -> str:
    spent = usd_so_far(inventory, prices, now)
    return "" if spent is None else f", ${spent:,.2f} since their launch"


def status_document(
    inventory: Inventory, prices: Mapping[str, float | None], now: datetime.datetime, dated: str = ""
) -> dict[str, Any]:
    """Return the status as JSON values: ages in seconds, prices in USD per hour, null if unknown.

    `now` is the time for the ages. `dated` is the date of the prices; "" if they are today's.
    """
    nodes = [
        {
            **{key: value for key, value in dataclasses.asdict(i).items() if key != "launched"},
            "launched": i.launched.isoformat(),
            "age_s": round((now - i.launched).total_seconds()),
            "usd_per_hour": prices.get(i.type),
        }
        for i in inventory.instances
    ]
    return {
        "stack": dataclasses.asdict(inventory.stack),
        "desired_workers": inventory.desired_workers,
        "nodes": nodes,
        "usd_per_hour": total_per_hour([i.type for i in inventory.instances], prices),
        "usd_so_far": usd_so_far(inventory, prices, now),
        "prices_of": dated or None,
    }


def read_status(found: Inventory, prices: Prices, *, wait_s: float) -> dict[str, Any]:
    """Return the status as JSON values. Waits up to `wait_s` seconds for prices; those still unknown are null."""
    kinds = [i.type for i in found.instances]
    known, now = prices.per_hour(kinds, wait_s), datetime.datetime.now(datetime.UTC)
    return status_document(found, known, now, prices.dated(kinds))


def print_status(
    found: Inventory,
    prices: Prices,
    *,
    wait_s: float,
    as_json: bool = False,
    bound: tuple[Limit, ...] | str = (),
    failures: Sequence[str] = (),
) -> None:
    """Print a cluster's nodes and the limits on its workers. Waits up to `wait_s` seconds for prices.

    `as_json` prints JSON instead of a table. `bound` are the limits, or the reason why they are unknown. By default, no
    limits are printed. `failures` are lines on failed launches.
    """
    now = datetime.datetime.now(datetime.UTC)
    if as_json:
        known_bounds = None if isinstance(bound, str) else [each.to_document(now) for each in bound]
        document = read_status(found, prices, wait_s=wait_s)
        print(json.dumps({**document, "bounds": known_bounds, "launch_failures": list(failures)}, indent=1))
    else:
        kinds = [i.type for i in found.instances]
        table = status_table(found, prices.per_hour(kinds, wait_s), now, prices.dated(kinds))
        print_table(dataclasses.replace(table, footer=(*table.footer, *failures, *worker_limits.lines(bound, now))))
