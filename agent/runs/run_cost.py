"""The cost of a run's nodes and the master, and the time and money that the run has spent in all its attempts.

The cost follows from the prices and instance types in the run's origin. What was spent is stored in spent.json in its
directory. `restart_costs` computes the cost of restarts.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any, Final, TypeVar

from agent.files.safe_read import read_regular
from agent.runs.run_directory import ORIGIN_FILE, RunDirectory
from agent.spec import untrusted_json
from agent.spec.run_states import STOP_GRACE_S

T = TypeVar("T")
SPENT_FILE: Final = "spent.json"
NODE_MARGIN_S: Final = STOP_GRACE_S + 15.0
"""Seconds after a limit is reached until a node terminates its ranks without the supervisor. The supervisor acts first:
it needs the grace period of a stop, and some time for its commands."""


def cost(origin: Any, spec: Any, seconds: float) -> float | None:
    """Return the cost of the run's nodes and the master for `seconds` at on-demand prices, in USD.

    `origin` and `spec` are the run's, as JSON values. Return None if a price is unknown. Call it in `unless_damaged`: a
    rank may have damaged both.
    """
    price = usd_per_hour(origin, spec)
    return None if price is None else round(price * max(0.0, seconds) / 3600, 4)


def usd_per_hour(origin: Any, spec: Any, *, at_most: bool = False) -> float | None:
    """Return the on-demand cost per hour of the run's nodes and the master, in USD; None if a price is unknown.

    `origin` and `spec` are the run's, as JSON values. The origin does not contain the type of a node that replaced
    another one after the launch. Such a node counts with the workers' price if all workers have the same one. With
    `at_most`, it counts with the highest price of all types that the worker group may have. Call it in
    `unless_damaged`: a rank may have damaged both.
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
    """Return the maximum on-demand cost per hour of a run's nodes and the master, in USD.

    `spec` is the run's, as JSON values. Return None if a price is unknown, or the run's origin is missing or damaged.
    """
    return unless_damaged(lambda: usd_per_hour(directory.document(ORIGIN_FILE), spec, at_most=True))


def on_spot(origin: Any, spec: Any, seconds: float) -> dict[str, Any] | None:
    """Return the number of a run's spot instances, and the cost of its nodes for `seconds` at spot prices.

    `origin` and `spec` are the run's, as JSON values. The fields of the result are `hosts`; `usd`, which includes the
    master and is None if a price is unknown; and `prices_of`, the day of the spot prices. Returns None for a run
    without spot instances. A node that replaced another one after the launch counts as a spot instance if all workers
    were spot instances. Call it in `unless_damaged`: a rank may have damaged `origin` and `spec`.
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
    """Return the result of `compute`; None if it fails because a rank has damaged the run's origin or spec.

    These failures are TypeError, ValueError, KeyError, AttributeError and OverflowError.
    """
    try:
        return compute()
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spent:
    """The time and money that a run has spent, over all attempts. Times of day are in seconds since 1970."""

    seconds: float = 0.0
    usd: float | None = None
    """Cost of the nodes and the master; None if a price was unknown in one of the attempts."""
    usd_per_hour: float | None = None
    """Price of the nodes of the last attempt and the master; None if it is unknown."""
    counted: float = 0.0
    """The time until which `seconds` and `usd` are counted."""
    ends: float | None = None
    """When a limit will be reached if the run continues; None without a limit, and after the attempt has ended."""
    reached: str = ""
    """The limit that stopped the last attempt, with the amount spent; "" if no limit did."""

    def __post_init__(self) -> None:
        """Raise ValueError for values of other types, and for numbers that are negative or not finite."""
        optional = [each for each in (self.usd, self.usd_per_hour, self.ends) if each is not None]
        numbers: list[object] = [self.seconds, self.counted, *optional]
        if not all(isinstance(each, int | float) and 0 <= each < math.inf for each in numbers):
            raise ValueError("a time or a cost is not a number of at least 0")
        if not isinstance(self.reached, str):
            raise ValueError("`reached` is not text")

    def to_document(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return dataclasses.asdict(self)


def read_spent(directory: RunDirectory) -> Spent | None:
    """Return what a run has spent; None if it has not started, or if spent.json is missing or malformed."""
    try:
        return Spent(**untrusted_json.parse(read_regular(directory.path / SPENT_FILE)))
    except (OSError, ValueError, TypeError):
        return None


def write_spent(directory: RunDirectory, spent: Spent) -> None:
    """Write what a run has spent. Raises OSError."""
    directory.write(directory.path / SPENT_FILE, json.dumps(spent.to_document()))


def settle_spent(directory: RunDirectory, now: float) -> None:
    """Count the time and cost of ranks that continued after their supervisor was lost, and write them to spent.json.

    The time ends at `now` (seconds since 1970), or when the nodes terminated the ranks because a limit was reached
    (NODE_MARGIN_S). Does nothing for a run without a limit, and if its last attempt has ended. Raises OSError.
    """
    spent = read_spent(directory)
    if spent is None or spent.ends is None:
        return
    more_s = max(0.0, min(now, spent.ends + NODE_MARGIN_S) - spent.counted)
    more_usd = None if spent.usd_per_hour is None else spent.usd_per_hour * more_s / 3600
    usd = None if spent.usd is None or more_usd is None else spent.usd + more_usd
    write_spent(directory, dataclasses.replace(spent, seconds=spent.seconds + more_s, usd=usd, counted=now, ends=None))
