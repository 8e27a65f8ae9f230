"""Estimate the time and cost of a sweep before it starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent.spec.run_limits import RunLimits
from agent.spec.sweep_trial import Trial
from cluster.planner.figure import Range
from cluster.planner.run_estimate import RunEstimate
from cluster.sweeps.plan import Pairs, Plan
from cluster.terminal.units import duration

MAX_ESTIMATES: Final = 100
"""Of more combinations, this many are estimated, evenly spread, and stand for the others."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepEstimate:
    """Number, time and cost of the runs to start."""

    runs: int
    at_once: int
    """Runs that fit on the workers at the same time."""
    by_parameters: Mapping[Pairs, RunEstimate]
    """Estimates of single runs by their parameters. Not all combinations are estimated."""
    seconds: Range | None
    """From the start of the first run to the end of the last one; None if unknown."""
    usd: Range | None
    """Cost of the workers; None if unknown."""

    def of(self, trial: Trial) -> dict[str, Any]:
        """Return the estimate of one run for its record, as JSON values; {} if its combination was not estimated."""
        found = self.by_parameters.get(trial.parameters)
        return found.document() if found else {}

    def describe(self, bounds: RunLimits, usd_per_hour: float | None) -> str:
        """Describe the sweep's size, time and price.

        If the time is unknown, --max-hours in `bounds` gives the maximum time and cost. Without it, only the price per
        hour is described: `usd_per_hour`, for the workers that the sweep uses, None if it is unknown.
        """
        size = f"{self.runs:,} run{'s' * (self.runs != 1)}, {self.at_once} at a time"
        if self.seconds:
            low, value, high = map(duration, (self.seconds.low, self.seconds.value, self.seconds.high))
            usd = f"${self.usd.value:,.2f} for their workers" if self.usd else "price unknown"
            return f"{size}: about {value} ({low} to {high}), {usd}"
        price = "price unknown" if usd_per_hour is None else f"${usd_per_hour:,.2f} per hour for the workers"
        if not bounds.max_hours:
            return f"{size}: time unknown, {price}; --max-hours limits the time of each run"
        hours = bounds.max_hours * -(-self.runs // self.at_once)
        cost = price if usd_per_hour is None else f"${hours * usd_per_hour:,.2f} for the workers"
        return f"{size}: at most {duration(3600 * hours)}, {cost} (--max-hours {bounds.max_hours:g} for each run)"

    def document(self) -> dict[str, Any]:
        """Return the estimate as JSON values: runs, at_once, seconds and usd.

        The last two have `low`, `value` and `high`. They are None if unknown.
        """
        pairs = (("seconds", self.seconds), ("usd", self.usd))
        ranges = {name: dataclasses.asdict(found) if found else None for name, found in pairs}
        return {"runs": self.runs, "at_once": self.at_once, **ranges}


def estimated(
    plan: Plan, trials: Sequence[Trial], workers: int, known: Mapping[Pairs, RunEstimate | None]
) -> SweepEstimate:
    """Return the estimate of a sweep. Its cost is the sum of its runs, and its time the sum divided by `at_once`.

    The time is at least that of the longest run. `known`: estimates of some combinations. Each other combination counts
    as their mean. If `known` is empty or has a None, time and cost are None; the cost also if a price is unknown.
    `workers`: number of workers that the sweep uses.
    """
    found = {pairs: estimate for pairs, estimate in known.items() if estimate}
    at_once = max(1, workers // plan.max_nodes)
    complete = bool(found) and len(found) == len(known)
    nodes = {pairs: int(dict(pairs).get("nodes", plan.nodes)) for pairs in found}
    scale = len(trials) / len(found) if found else 0.0
    total = _sum([each.seconds.times(nodes[pairs] * scale) for pairs, each in found.items()]) if complete else None
    prices = [each.usd for each in found.values()]
    usd = _sum([price.times(scale) for price in prices if price]) if complete and all(prices) else None
    longest = max((each.seconds.value for each in found.values()), default=0.0)
    width = at_once * plan.max_nodes
    seconds = total.times(max(1 / width, longest / total.value)) if total else None
    size = min(at_once, len(trials))
    return SweepEstimate(runs=len(trials), at_once=size, by_parameters=found, seconds=seconds, usd=usd)


def chosen_combinations(trials: Sequence[Trial]) -> list[Trial]:
    """Return the first run of each combination to estimate: at most MAX_ESTIMATES combinations, evenly spread."""
    found = list({trial.parameters: trial for trial in reversed(trials)}.values())
    step = max(1, -(-len(found) // MAX_ESTIMATES))
    return found[::step]


def _sum(ranges: Sequence[Range]) -> Range:
    return Range(
        low=sum(each.low for each in ranges),
        value=sum(each.value for each in ranges),
        high=sum(each.high for each in ranges),
    )
