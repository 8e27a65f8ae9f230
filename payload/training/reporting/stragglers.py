"""Ranks whose own part of a step takes much longer than the others', which wait for them in every step.

A rank's own part is the wait for its images and the forward and backward pass; the sum over all ranks is not, since in
it everyone waits for the last. Standard library only.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Final

SLOW_RATIO: Final = 1.5
"""Times the median of all ranks from which a rank is a straggler."""
LEAST_LOST: Final = 0.1
"""Fraction of the time of training steps that the others must wait for it."""
WINDOW_S: Final = 15.0
"""Means over this time at least are compared."""
WINDOW_STEPS: Final = 5
"""And over so many steps at least."""
WINDOWS: Final = 2
"""Windows in a row that must agree: a neighbour's burst is none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Straggler:
    """A rank for which the others wait, or no longer."""

    rank: int
    host: str
    own_s: float
    """Mean time of its own part of a step, over the last window."""
    median_s: float
    """Median of that of all ranks; of an even number, the lower one of the two in the middle."""
    lost: float
    """Fraction of the time of training steps that a rank with the median waits for it, 0 to 1."""
    is_over: bool = False

    def __str__(self) -> str:
        own = f"rank {self.rank} ({self.host})"
        if self.is_over:
            return f"{own} keeps up with the others again"
        return (
            f"{own} is a straggler: its own part of a step takes {1000 * self.own_s:,.0f} ms, "
            f"{self.own_s / self.median_s:.1f} times the median, and the others wait for it {self.lost:.0%} of the time"
        )


class StragglerWatch:
    """Compare the ranks of one run, step by step."""

    def __init__(self, hosts: Sequence[str]) -> None:
        """`hosts`: the name of each rank's host, by rank."""
        self._hosts = tuple(hosts)
        self._known: set[int] = set()
        self._counts = [0] * len(self._hosts)
        """Windows in a row in which a rank was not what it is known as, slow or not."""
        self._sums = [0.0] * len(self._hosts)
        self._seconds, self._steps, self._last_s = 0.0, 0, 0.0

    def step(self, own_s: Sequence[float], seconds: float) -> list[Straggler]:
        """Count the step before: what is new is returned, by rank.

        `own_s`: how long each rank's own part of the step before took; all zero where nothing is known, as with the
        first step of an epoch. `seconds`: how long this step took, of which the next call tells the parts.
        """
        before_s, self._last_s = self._last_s, seconds
        if len(own_s) != len(self._hosts) or not any(own_s):
            return []
        self._sums = [total + max(0.0, own) for total, own in zip(self._sums, own_s, strict=True)]
        self._seconds += before_s
        self._steps += 1
        if self._seconds < WINDOW_S or self._steps < WINDOW_STEPS:
            return []
        found = self._compare()
        self._sums, self._seconds, self._steps = [0.0] * len(self._hosts), 0.0, 0
        return found

    def _compare(self) -> list[Straggler]:
        median, found = statistics.median_low(self._sums), []
        if median <= 0:
            return []
        for rank, own in enumerate(self._sums):
            lost = min(1.0, max(0.0, own - median) / self._seconds)
            is_slow = own >= SLOW_RATIO * median
            # One that is known keeps up once it is no slower, not where the others wait for something else as well.
            if rank not in self._known:
                is_slow = is_slow and lost >= LEAST_LOST
            if is_slow == (rank in self._known):
                self._counts[rank] = 0
                continue
            self._counts[rank] += 1
            if self._counts[rank] < WINDOWS:
                continue
            self._counts[rank] = 0
            self._known ^= {rank}
            found.append(
                Straggler(
                    rank=rank,
                    host=self._hosts[rank],
                    own_s=own / self._steps,
                    median_s=median / self._steps,
                    lost=lost,
                    is_over=not is_slow,
                )
            )
        return found
