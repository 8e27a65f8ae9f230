"""Compare two benchmarks cell by cell, and find the cells that changed by more than their spread."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

from cluster.bench.measurements import Bench, Measurement
from cluster.errors import DeepcdkError
from payload.settings.bench import CHOSEN

LEAST: Final = 0.05
"""Minimum change to report. Smaller ones may come from differences between runs, such as the instances, that no spread
shows.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """One cell that both benchmarks have."""

    now: Measurement
    before: Measurement

    @property
    def change(self) -> float:
        """Return by how much longer the cell takes than before, as a fraction. It is negative if the cell is faster."""
        return self.now.median_s / self.before.median_s - 1

    @property
    def threshold(self) -> float:
        """Return the fraction of the smaller time by which the times must differ: both spreads, and at least LEAST."""
        return max(LEAST, self.now.spread + self.before.spread)

    @property
    def is_significant(self) -> bool:
        """Return whether the larger of the two times exceeds the smaller by more than `threshold`, as a fraction of the
        smaller. So a faster cell can be significant although `abs(change)` is below the threshold.
        """
        return max(1 + self.change, 1 / (1 + self.change)) - 1 > self.threshold


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """The comparison of a benchmark with an earlier one."""

    before: str
    """Id of the earlier run."""
    differences: tuple[Difference, ...]
    """The cells that both benchmarks have."""
    left_out: int
    """Number of cells that only one benchmark has."""
    tuned_now: bool = True
    tuned_before: bool = True
    """Whether the ranks were placed and tuned like a recipe's. If not, they had all defaults."""

    @property
    def significant(self) -> tuple[Difference, ...]:
        """Return the cells that changed, largest change first."""
        return tuple(sorted((e for e in self.differences if e.is_significant), key=lambda each: -abs(each.change)))

    def sentences(self) -> Iterator[str]:
        """Yield the findings as sentences: the number of cells, then the significant changes, or that there are none.

        If only one benchmark was tuned, the effect of tuning on each cell is described instead of changes.
        """
        count = len(self.differences)
        left_out = f"; {self.left_out} left out, because only one benchmark has them" if self.left_out else ""
        yield f"against {self.before}: {count} {'cell' if count == 1 else 'cells'} compared{left_out}"
        if self.tuned_now != self.tuned_before:
            for each in self.differences:
                tuned, default = (each.now, each.before) if self.tuned_now else (each.before, each.now)
                within = "" if each.is_significant else f"; within the spread of {each.threshold:.1%}"
                yield (
                    f"{each.now.cell}: tuned {default.median_s / tuned.median_s:.2f} times as fast as by default "
                    f"({tuned.median_s * 1e3:.4g} ms, {default.median_s * 1e3:.4g} ms{within})"
                )
            return
        for each in self.significant:
            word = "slower" if each.change > 0 else "faster"
            took = f"{each.before.median_s * 1e3:.4g} ms before, {each.now.median_s * 1e3:.4g} ms now"
            yield f"{each.now.cell}: {abs(each.change):.1%} {word} ({took}); the spread is {each.threshold:.1%}"
        if not self.significant:
            widest = max(each.threshold for each in self.differences)
            yield f"no difference beyond the spread, which is up to {widest:.1%} in the noisiest cell"

    def document(self) -> dict[str, Any]:
        """Return the comparison as JSON values: against, left_out, tuned, tuned_before and cells."""
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
    """Compare two benchmarks cell by cell. Cells with different numbers of ranks are not compared.

    Raises DeepcdkError if there is nothing to compare.
    """
    earlier = {(each.cell, each.ranks): each for each in before.measurements}
    differences = [
        Difference(now=each, before=found)
        for each in now.measurements
        if (found := earlier.get((each.cell, each.ranks))) is not None
    ]
    if not differences:
        raise DeepcdkError(
            f"benchmarks {now.run_id} and {before.run_id} have no measurement in common",
            remedy="measure again with the same --nodes, --networks and --batch-sizes, or compare with another one",
        )
    return Comparison(
        before=before.run_id,
        differences=tuple(differences),
        left_out=len(now.measurements) + len(earlier) - 2 * len(differences),
        tuned_now=now.tuning == CHOSEN,
        tuned_before=before.tuning == CHOSEN,
    )
