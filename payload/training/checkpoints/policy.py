"""When a checkpoint is due, what it costs the training, and which are retained. Standard library only."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

LATEST_COSTS: Final = 3
"""How many of the latest checkpoints say what the next one will cost: one may have met a busy machine."""
NEWEST_OF_ALL: Final = 2
"""How many of the newest stay whether they were taken after an epoch or within one; fewer where fewer are asked for."""


@dataclasses.dataclass(kw_only=True)
class SavePolicy:
    """When to save: after epochs, and within them by the clock.

    By the clock, a fault loses `minutes` of training at most: the time to write a checkpoint is taken off the time
    between two. Where they cost more than `cost_limit` of the time at that, they are rarer.
    """

    epochs: int
    """Epochs between checkpoints."""
    last_epoch: int
    """The epoch that always ends with a checkpoint."""
    minutes: float = 0.0
    """Minutes of training that may be lost; 0: no checkpoints by the clock."""
    cost_limit: float = 0.0
    """Fraction of the time that those by the clock may take; 0: no limit."""
    keep_best: bool = False
    """Whether an epoch that is better than all before also ends with one."""
    best: float | None = None
    """Best accuracy so far; None where there is none."""
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._last = self.clock()
        self._costs_s: deque[float] = deque(maxlen=LATEST_COSTS)
        self._written_s = 0.0

    def after_epoch(self, epoch: int, accuracy: float) -> bool:
        """Return whether one is due after this epoch, counted from 1, and remember its accuracy."""
        is_best = self.best is None or accuracy > self.best
        if is_best:
            self.best = accuracy
        return epoch % self.epochs == 0 or epoch == self.last_epoch or (self.keep_best and is_best)

    @property
    def interval_s(self) -> float:
        """Return the time between two by the clock; 0: there are none."""
        if not self.minutes:
            return 0.0
        bound_s = 60 * self.minutes
        wanted_s = bound_s - min(self._written_s, bound_s / 2)
        if not self.cost_limit or not self._costs_s:
            return wanted_s
        return max(wanted_s, statistics.mean(self._costs_s) / self.cost_limit)

    def within_epoch(self) -> bool:
        """Return whether one is due by the clock."""
        return self.minutes > 0 and self.clock() - self._last >= self.interval_s

    def saved(self) -> None:
        """Restart the clock: a checkpoint has just been taken."""
        self._last = self.clock()

    def wrote(self, *, cost_s: float, written_s: float) -> None:
        """Learn from a checkpoint how much training time it cost, and how long it took until it was written."""
        self._costs_s.append(cost_s)
        self._written_s = written_s


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standing:
    """What decides whether a checkpoint is retained, besides its age."""

    accuracy: float | None
    """On the test images, 0 to 1; None where it was not measured."""
    ends_epoch: bool
    """Whether it was taken after an epoch, and not within one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retention:
    """Which checkpoints are retained: the newest and, on request, the one of the best accuracy.

    Those within epochs, which the clock brings, do not push out those after epochs: of all, the two newest stay, and
    of those after epochs as many as are asked for.
    """

    newest: int
    """How many of the newest after epochs stay: more than one, so that a damaged one has a predecessor."""
    best: bool = False
    """Whether the one of the best accuracy stays too; of equals, the newest."""

    def __post_init__(self) -> None:
        if self.newest < 1:
            raise ValueError(f"newest = {self.newest}: must be at least 1")

    def kept(self, standings: Mapping[str, Standing]) -> set[str]:
        """Return which to retain of checkpoints whose names sort by age."""
        names = sorted(standings, reverse=True)
        kept = {*names[: min(self.newest, NEWEST_OF_ALL)]}
        kept.update([name for name in names if standings[name].ends_epoch][: self.newest])
        measured = {name: accuracy for name in names if (accuracy := standings[name].accuracy) is not None}
        if self.best and measured:
            kept.add(max(measured, key=lambda name: (measured[name], name)))
        return kept


WINDOW: Final = 64
"""Steps alone, the latest, whose median is the usual time: few, as batch and image size change on the way."""
LEAST: Final = 5
"""Steps alone without which nothing is known of the usual time."""


class StepCosts:
    """Compare steps beside a write with steps alone.

    The ranks wait for each other in each step, so one of them sees what a write costs all.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without any step."""
        self._clock = clock
        self._last: float | None = None
        self._alone: deque[float] = deque(maxlen=WINDOW)
        self._beside: list[float] = []

    def interrupt(self) -> None:
        """Leave out the step that runs now: what it waits for is no step's time, as the first batch of an epoch."""
        self._last = None

    def resume(self) -> None:
        """Time the next step from now on: what took time before it, such as a copy, is counted elsewhere."""
        if self._last is not None:
            self._last = self._clock()

    def step(self, *, beside: bool) -> None:
        """Count a step that has just ended; `beside`: a checkpoint was being written during a part of it."""
        now = self._clock()
        if self._last is not None:
            (self._beside.append if beside else self._alone.append)(now - self._last)
        self._last = now

    def take(self) -> float:
        """Return how much longer the steps beside a write were in all, s, and forget them."""
        steps, self._beside = self._beside, []
        if not steps or len(self._alone) < LEAST:
            return 0.0
        return max(0.0, sum(steps) - len(steps) * statistics.median(self._alone))
