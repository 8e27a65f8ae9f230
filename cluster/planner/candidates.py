"""Candidates for a plan, each an instance type and a number of nodes: their time and cost, and the recommended one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cluster.planner.assumptions import Assumptions
from cluster.planner.figure import Range
from cluster.planner.hardware import Hardware
from cluster.planner.run_time import Cluster, Parts, run_seconds
from cluster.planner.workload import Workload


@dataclasses.dataclass(frozen=True, kw_only=True)
class HourlyPrices:
    """Hourly prices of a cluster, USD; None if unknown."""

    node: float | None
    """An on-demand worker."""
    spot_node: float | None = None
    """A spot worker."""
    rest: float = 0.0
    """Everything besides the workers, such as the master."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """A run on one instance type and number of nodes."""

    instance_type: str
    nodes: int
    seconds: Range
    parts: Parts
    usd: Range | None
    """Cost on demand; None if a price is unknown."""
    spot_usd: Range | None
    on_frontier: bool = False
    """Whether no other candidate is both faster and cheaper."""

    def document(self) -> dict[str, Any]:
        """Return the fields, and the name of the longest part as `bottleneck`, as JSON values. Numbers are rounded."""
        found = dataclasses.asdict(self)
        found["parts"] = {name: round(value, 1) for name, value in found["parts"].items()}
        for name in ("seconds", "usd", "spot_usd"):
            if found[name]:
                found[name] = {key: round(value, 2) for key, value in found[name].items()}
        return {**found, "bottleneck": self.parts.bottleneck}


def seconds_in_range(workload: Workload, cluster: Cluster, assumed: Assumptions) -> tuple[Range, Parts]:
    """Return the run time with its range, s, and its parts.

    Each figure is moved to both ends of its range separately. The changes are combined as independent errors: the root
    of the sum of squares.
    """
    parts = run_seconds(workload, cluster, assumed)
    total, less, more = parts.total, 0.0, 0.0
    for name in (field.name for field in dataclasses.fields(assumed)):
        figure = assumed.figure(name)
        moved = [assumed.at(name, end) for end in (figure.low, figure.high)]
        ends = [run_seconds(workload, cluster, each).total - total for each in moved]
        less += min(0.0, *ends) ** 2
        more += max(0.0, *ends) ** 2
    return Range(low=total - math.sqrt(less), value=total, high=total + math.sqrt(more)), parts


def evaluate(
    workload_of: Callable[[int], Workload],
    assumptions_of: Callable[[Workload, Hardware, int], Assumptions],
    types: Sequence[Hardware],
    nodes: Sequence[int],
    prices: Mapping[str, HourlyPrices],
) -> list[Candidate]:
    """Return one candidate for each instance type and number of nodes, by type and then by number, in the order given.

    Candidates on the frontier are marked. `workload_of` returns the workload for a number of ranks. `assumptions_of`
    returns the assumptions for a workload on that many nodes of a type. `prices` are by instance type.
    """
    found = []
    for hardware in types:
        for count in nodes:
            cluster = Cluster(hardware=hardware, nodes=count)
            workload = workload_of(cluster.ranks)
            seconds, parts = seconds_in_range(workload, cluster, assumptions_of(workload, hardware, count))
            price = prices[hardware.instance_type]
            found.append(
                Candidate(
                    instance_type=hardware.instance_type,
                    nodes=count,
                    seconds=seconds,
                    parts=parts,
                    usd=_cost(seconds, price.node, count, price.rest),
                    spot_usd=_cost(seconds, price.spot_node, count, price.rest),
                )
            )
    return mark_frontier(found)


def _cost(seconds: Range, node: float | None, nodes: int, rest: float) -> Range | None:
    return None if node is None else seconds.times((nodes * node + rest) / 3600)


def mark_frontier(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates, each with its value of `on_frontier`.

    A candidate is on the frontier if it has a price, and no other candidate is as fast or faster for the same price or
    less. Of equal candidates, the first one is.
    """
    priced = sorted((each for each in candidates if each.usd), key=lambda each: (_time(each), _price(each)))
    best, least = set(), math.inf
    for each in priced:
        if _price(each) < least:
            least = _price(each)
            best.add((each.instance_type, each.nodes))
    return [dataclasses.replace(each, on_frontier=(each.instance_type, each.nodes) in best) for each in candidates]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """The recommended candidate and the reason."""

    candidate: Candidate | None
    """None if no candidate meets the limits."""
    reason: str


def choose(
    candidates: Iterable[Candidate], *, deadline_s: float | None = None, budget_usd: float | None = None
) -> Choice:
    """Return the recommended candidate and the reason. There must be at least one candidate.

    With a deadline: the cheapest candidate that meets it, within the budget if one is given. With only a budget: the
    fastest candidate within it. Without limits: the candidate with the lowest product of time and cost. A candidate
    with an unknown price exceeds every budget. If no price is known, the fastest candidate is recommended or, with a
    deadline, the one with the fewest nodes. If no candidate meets the limits, the candidate is None, and the reason
    names the nearest.
    """
    every = list(candidates)
    priced = [each for each in every if each.usd]
    if deadline_s is None and budget_usd is None:
        if priced:
            return Choice(candidate=min(priced, key=_product), reason="it has the lowest product of time and cost")
        return Choice(candidate=min(every, key=_time), reason="it is the fastest; no price is known")
    fitting = [
        each
        for each in (priced if budget_usd is not None else every)
        if (deadline_s is None or each.seconds.value <= deadline_s)
        and (budget_usd is None or (each.usd and each.usd.value <= budget_usd))
    ]
    if not fitting:
        return _none_fits(every, priced, deadline_s, budget_usd)
    if deadline_s is None:
        return Choice(candidate=min(fitting, key=_time), reason="it is the fastest within the budget")
    known = [each for each in fitting if each.usd]
    if not known:
        fewest = min(fitting, key=lambda each: each.nodes)
        return Choice(candidate=fewest, reason="it meets the deadline with the fewest nodes; no price is known")
    chosen = min(known, key=_price)
    late = chosen.seconds.high > deadline_s
    doubt = "; the slow end of its range misses the deadline" if late else ""
    return Choice(candidate=chosen, reason=f"it is the cheapest that meets the deadline{doubt}")


def _none_fits(
    every: Sequence[Candidate], priced: Sequence[Candidate], deadline_s: float | None, budget_usd: float | None
) -> Choice:
    """Return a choice without a candidate. Its reason names the fastest for a deadline, the cheapest for a budget."""
    hints = []
    if deadline_s is not None:
        fastest = min(every, key=_time)
        hints.append(
            f"the fastest is {fastest.nodes} x {fastest.instance_type} with {fastest.seconds.value / 3600:.2f} h"
        )
    if budget_usd is not None and priced:
        cheapest = min(priced, key=_price)
        hints.append(f"the cheapest is {cheapest.nodes} x {cheapest.instance_type} with ${_price(cheapest):.2f}")
    elif budget_usd is not None:
        hints.append("no price is known")
    return Choice(candidate=None, reason=f"no candidate meets the limits; {', '.join(hints)}")


def _time(candidate: Candidate) -> float:
    return candidate.seconds.value


def _price(candidate: Candidate) -> float:
    return candidate.usd.value if candidate.usd else math.inf


def _product(candidate: Candidate) -> float:
    return _time(candidate) * _price(candidate)
