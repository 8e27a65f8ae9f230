"""The cost of a run's nodes and the master, from the prices and instance types in its origin.

`spending` stores the amounts of all attempts, and `restart_costs` computes the cost of restarts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from agent.runs.run_directory import ORIGIN_FILE, RunDirectory

T = TypeVar("T")


def cost(origin: Any, spec: Any, seconds: float) -> float | None:
    """Return the cost of the run's nodes and the master for `seconds`, in USD; None if a price is unknown.

    `origin` and `spec` are the run's, as JSON values. If a rank has damaged them, this raises one of the errors that
    `unless_damaged` handles.
    """
    price = usd_per_hour(origin, spec)
    return None if price is None else round(price * max(0.0, seconds) / 3600, 4)


def usd_per_hour(origin: Any, spec: Any, *, at_most: bool = False) -> float | None:
    """Return the cost per hour of the run's nodes and the master, in USD; None if a price is unknown.

    `origin` and `spec` are the run's, as JSON values. The origin does not contain the type of a node that replaced
    another one after the launch. Such a node counts with the workers' price if all workers have the same one. With
    `at_most`, it counts with the highest price of all types that the worker group may have. Raises the same errors as
    `cost`.
    """
    if not origin or not spec or not origin.get("instance_types"):
        return None
    prices, master = origin["usd_per_hour"], origin.get("master") or ""
    usual = {kind for instance, kind in origin["instance_types"].items() if instance != master}
    if at_most:
        usual |= set(origin.get("worker_types") or ())
    kinds, hosts = origin["instance_types"], {host["instance_id"] for host in spec.get("hosts", ())}
    of_usual = [prices.get(kind) for kind in usual]
    same = of_usual[0] if len(of_usual) == 1 else None
    other = max((price for price in of_usual if price is not None), default=None) if at_most else same
    each = [prices.get(kinds[id]) if id in kinds else other for id in sorted(hosts | {master} - {""})]
    known = [float(price) for price in each if price is not None]
    return sum(known) if known and len(known) == len(each) else None


def highest_usd_per_hour(directory: RunDirectory, spec: Any) -> float | None:
    """Return the maximum cost per hour of a run's nodes and the master, in USD; None if a price cannot be read."""
    return unless_damaged(lambda: usd_per_hour(directory.document(ORIGIN_FILE), spec, at_most=True))


def on_spot(origin: Any, spec: Any, seconds: float) -> dict[str, Any] | None:
    """Return the number of a run's spot instances, and the cost of its nodes for `seconds` at spot prices.

    `origin` and `spec` are the run's, as JSON values. The fields of the result are `hosts`; `usd`, which includes the
    master and is None if a price is unknown; and `prices_of`, the day of the spot prices. Returns None for a run
    without spot instances. A node that replaced another one after the launch counts as a spot instance if all workers
    were spot instances. Raises the same errors as `cost`.
    """
    if not origin or not spec or not origin.get("spot"):
        return None
    master, on_demand = origin.get("master") or "", usd_per_hour(origin, spec)
    kinds, spot = origin["instance_types"], set(origin["spot"])
    workers = set(kinds) - {master}
    hosts = [host["instance_id"] for host in spec.get("hosts", ())]
    ours = [id for id in hosts if id in spot or (id not in kinds and workers <= spot)]
    if not ours:
        return None
    of_workers = {kinds[id] for id in workers}
    usual = of_workers.pop() if len(of_workers) == 1 else ""
    prices = [
        (origin["usd_per_hour"].get(kind), origin["spot_usd_per_hour"].get(kind))
        for kind in (kinds.get(id, usual) for id in ours)
    ]
    usd = None
    if on_demand is not None and all(None not in pair for pair in prices):
        saved = sum(float(full) - float(reduced) for full, reduced in prices)
        usd = round((on_demand - saved) * max(0.0, seconds) / 3600, 4)
    return {"hosts": len(ours), "usd": usd, "prices_of": str(origin.get("spot_prices_of") or "")}


def unless_damaged(compute: Callable[[], T]) -> T | None:
    """Return the result of `compute`; None if a rank has damaged the origin or the spec so that this fails."""
    try:
        return compute()
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return None
