"""Detect stragglers: ranks that delay the others in every step, because their own part of it takes much longer.

A rank's own part is the wait for its images and the forward and backward pass. The sum over all ranks is excluded,
because in it all ranks wait for the slowest. Standard library only.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Final

SLOW_RATIO: Final = 1.5
"""Minimum ratio of a straggler's time to the median of all ranks."""
MIN_LOST: Final = 0.1
"""Minimum fraction of the training time that the others wait for a straggler."""
WINDOW_S: Final = 15.0
"""Minimum time to average over before ranks are compared."""
WINDOW_STEPS: Final = 5
"""Minimum number of steps to average over before ranks are compared."""
WINDOWS: Final = 2
"""Number of consecutive windows that must agree, so that a short burst of other load is ignored."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Straggler:
    """A rank that has become a straggler, or has recovered."""

    rank: int
    host: str
    own_s: float
    """Mean time of its own part of a step, over the last window."""
    median_s: float
    """Median of all ranks' own parts. With an even number of ranks, the lower of the middle two."""
    lost: float
    """Fraction of the training time that a rank with the median time waits for it, 0 to 1."""
    is_over: bool = False

    def __str__(self) -> str:
        own = f"rank {self.rank} ({self.host})"
        if self.is_over:
            return f"{own} keeps up with the others again"
        ratio = self.own_s / self.median_s
        remedy = f"`fab replace {self.host.removeprefix('deeplearning-')} --force`, then `fab resume`"
        return (
            f"{own} is a straggler: its own part of a step takes {1000 * self.own_s:,.0f} ms, {ratio:.1f} times the "
            f"median, and the others wait for it {self.lost:.0%} of the time; if this lasts: {remedy}"
        )


class StragglerWatch:
    """Compare the step times of a run's ranks."""

    def __init__(self, hosts: Sequence[str]) -> None:
        """`hosts`: host name of each rank, by rank."""
        self._hosts = tuple(hosts)
        self._known: set[int] = set()
        self._counts = [0] * len(self._hosts)
        """Number of consecutive windows that contradict a rank's known state, slow or not."""
        self._sums = [0.0] * len(self._hosts)
        self._seconds, self._steps, self._last_s = 0.0, 0, 0.0

    def step(self, own_s: Sequence[float], seconds: float) -> list[Straggler]:
        """Count the previous step; return the ranks that have now become stragglers or recovered, usually none.

        `own_s`: each rank's seconds for its own part of the previous step, all zero if unknown (at the first step of an
        epoch). `seconds`: duration of the current step, which counts at the next call, when its own parts are known. A
        rank is reported once per change, after WINDOWS consecutive windows of steps agree.
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
            # A known straggler recovers by its own time, even if the others also wait for something else.
            if rank not in self._known:
                is_slow = is_slow and lost >= MIN_LOST
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
