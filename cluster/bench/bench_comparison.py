"""Two benchmarks cell by cell: which cells took longer or shorter than their spread explains."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

from cluster.bench.measurements import Bench, Measurement
from cluster.errors import DeepcdkError
from payload.settings.bench import CHOSEN

LEAST: Final = 0.05
"""No smaller difference counts: what differs between two runs, as the instances, is in neither's spread."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """One cell of both benchmarks."""

    now: Measurement
    before: Measurement

    @property
    def change(self) -> float:
        """Return how much longer the cell takes than before, as a fraction; negative: shorter."""
        return self.now.median_s / self.before.median_s - 1

    @property
    def threshold(self) -> float:
        """Return the change that counts: more than both spreads together, and than LEAST."""
        return max(LEAST, self.now.spread + self.before.spread)

    @property
    def gain(self) -> float:
        """Return how many times as fast the cell is as before."""
        return self.before.median_s / self.now.median_s

    @property
    def is_significant(self) -> bool:
        """Return whether the change is larger than the threshold, upwards or downwards alike."""
        return max(1 + self.change, 1 / (1 + self.change)) - 1 > self.threshold


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """A benchmark beside an earlier one."""

    before: str
    """Id of the earlier run."""
    differences: tuple[Difference, ...]
    """Each cell that both have."""
    left_out: int
    """Cells that only one of the two has."""
    tuned_now: bool = True
    tuned_before: bool = True
    """Whether their ranks were placed and tuned as a recipe's, or had all defaults."""

    @property
    def significant(self) -> tuple[Difference, ...]:
        """Return the cells that differ, the largest change first."""
        found = (each for each in self.differences if each.is_significant)
        return tuple(sorted(found, key=lambda each: -abs(each.change)))

    def sentences(self) -> tuple[str, ...]:
        """Return what the comparison has found, in words."""
        widest = max(each.threshold for each in self.differences)
        count = len(self.differences)
        lines = [f"against {self.before}: {count} {'cell' if count == 1 else 'cells'} compared"]
        if self.left_out:
            lines[0] += f", {self.left_out} of only one of the two left out"
        if self.tuned_now != self.tuned_before:
            return (*lines, *self._gains())
        for each in self.significant:
            word = "slower" if each.change > 0 else "faster"
            took = f"{each.before.median_s * 1e3:.4g} ms before, {each.now.median_s * 1e3:.4g} ms now"
            lines.append(
                f"{each.now.cell}: {abs(each.change):.1%} {word} ({took}); the spreads explain {each.threshold:.1%}"
            )
        if not self.significant:
            lines.append(f"no difference beyond the spread, which hides up to {widest:.1%} in the least steady cell")
        return tuple(lines)

    def _gains(self) -> Iterator[str]:
        """Yield what the tuning is worth in each cell."""
        for each in self.differences:
            gain = each.gain if self.tuned_now else 1 / each.gain
            tuned, by_default = (each.now, each.before) if self.tuned_now else (each.before, each.now)
            within = "" if each.is_significant else f"; the spreads explain {each.threshold:.1%}"
            yield (
                f"{each.now.cell}: tuned {gain:.2f} times as fast as by default "
                f"({tuned.median_s * 1e3:.4g} ms, {by_default.median_s * 1e3:.4g} ms{within})"
            )

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        cells = [
            {
                "cell": dataclasses.asdict(each.now.cell),
                "before_s": each.before.median_s,
                "now_s": each.now.median_s,
                "change": each.change,
                "threshold": each.threshold,
                "differs": each.is_significant,
            }
            for each in self.differences
        ]
        tuned = {"tuned": self.tuned_now, "tuned_before": self.tuned_before}
        return {"against": self.before, "left_out": self.left_out, **tuned, "cells": cells}


def compare(now: Bench, before: Bench) -> Comparison:
    """Compare cell by cell. Raises DeepcdkError where the two have none in common."""
    earlier = {(each.cell, each.ranks): each for each in before.measurements}
    differences = [
        Difference(now=each, before=earlier[(each.cell, each.ranks)])
        for each in now.measurements
        if (each.cell, each.ranks) in earlier
    ]
    if not differences:
        raise DeepcdkError(
            f"benchmarks {now.run_id} and {before.run_id} have no cell in common",
            remedy="measure with the same --nodes, --networks and --batch-sizes",
        )
    left_out = len(now.measurements) + len(earlier) - 2 * len(differences)
    return Comparison(
        before=before.run_id,
        differences=tuple(differences),
        left_out=left_out,
        tuned_now=now.tuning == CHOSEN,
        tuned_before=before.tuning == CHOSEN,
    )
