"""Decide when a checkpoint is due, measure its cost to training, and decide which to retain. Standard library only."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

LATEST_COSTS: Final = 3
"""Number of recent checkpoints used to estimate the cost of the next one, because one may have met a busy machine."""
NEWEST_OF_ALL: Final = 2
"""Number of newest checkpoints to keep in any case, after or within an epoch. At most as many as the user asked for."""


@dataclasses.dataclass(kw_only=True)
class SavePolicy:
    """Decide when to save: after epochs, and within epochs by the clock.

    By the clock, a failure loses at most `minutes` of training: the time to write a checkpoint is subtracted from the
    interval. The interval is longer if checkpoints would take more than the fraction `cost_limit` of the time.
    """

    epochs: int
    """Number of epochs between checkpoints."""
    last_epoch: int
    """The last epoch. A checkpoint is always saved after it."""
    minutes: float = 0.0
    """Maximum minutes of training to lose; 0: no checkpoints by the clock."""
    cost_limit: float = 0.0
    """Maximum fraction of time for checkpoints by the clock; 0: no limit."""
    keep_best: bool = False
    """Also save after an epoch with the best accuracy so far."""
    best: float | None = None
    """Best accuracy so far; None before the first evaluation."""
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._last = self.clock()
        self._costs_s: deque[float] = deque(maxlen=LATEST_COSTS)
        self._written_s = 0.0

    def after_epoch(self, epoch: int, accuracy: float) -> bool:
        """Return whether a checkpoint is due after this epoch, counted from 1. Remember the best accuracy.

        It is due every `epochs` epochs, after the last epoch, and with `keep_best` if the accuracy is the best so far.
        """
        is_best = self.best is None or accuracy > self.best
        if is_best:
            self.best = accuracy
        return epoch % self.epochs == 0 or epoch == self.last_epoch or (self.keep_best and is_best)

    @property
    def interval_s(self) -> float:
        """Return the time between checkpoints by the clock; 0: the clock is not used.

        It is the requested time, less the time that the latest checkpoint took to write, but at least half of the
        requested time. It is longer if the recent checkpoints would otherwise exceed `cost_limit`.
        """
        if not self.minutes:
            return 0.0
        bound_s = 60 * self.minutes
        wanted_s = bound_s - min(self._written_s, bound_s / 2)
        if not self.cost_limit or not self._costs_s:
            return wanted_s
        return max(wanted_s, statistics.mean(self._costs_s) / self.cost_limit)

    def within_epoch(self) -> bool:
        """Return whether a checkpoint is due by the clock; always False if `minutes` is 0."""
        return self.minutes > 0 and self.clock() - self._last >= self.interval_s

    def saved(self) -> None:
        """Restart the clock after a checkpoint was taken."""
        self._last = self.clock()

    def wrote(self, *, cost_s: float, written_s: float) -> None:
        """Record the training time that a checkpoint cost, and the time from the copy until it was written, seconds."""
        self._costs_s.append(cost_s)
        self._written_s = written_s


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standing:
    """The properties of a checkpoint that decide whether it is retained, besides its age."""

    accuracy: float | None
    """Accuracy on the test images, 0 to 1; None if it was not measured."""
    ends_epoch: bool
    """Whether it was saved after an epoch, not within one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retention:
    """Select the checkpoints to retain: the newest and, on request, the one with the best accuracy.

    Checkpoints within epochs do not displace those after epochs. The two newest of all are retained, and also the
    newest after epochs, as many as requested.
    """

    newest: int
    """Number of newest checkpoints after epochs to retain. With more than one, a damaged one has a predecessor."""
    best: bool = False
    """Also retain the checkpoint with the best accuracy; among equals, the newest."""

    def __post_init__(self) -> None:
        if self.newest < 1:
            raise ValueError(f"newest = {self.newest}: must be at least 1")

    def kept(self, standings: Mapping[str, Standing]) -> set[str]:
        """Return the names of the checkpoints to retain.

        `standings`: all checkpoints by name. Names must sort by age.
        """
        names = sorted(standings, reverse=True)
        kept = {*names[: min(self.newest, NEWEST_OF_ALL)]}
        kept.update([name for name in names if standings[name].ends_epoch][: self.newest])
        measured = {name: accuracy for name in names if (accuracy := standings[name].accuracy) is not None}
        if self.best and measured:
            kept.add(max(measured, key=lambda name: (measured[name], name)))
        return kept


WINDOW: Final = 64
"""Number of recent undisturbed steps. It is small, because batch and image size may change during a run."""
LEAST: Final = 5
"""Minimum number of undisturbed steps for estimating the normal step time."""


class StepCosts:
    """Measure how much slower steps are while a checkpoint is written.

    The ranks wait for each other in each step, so one rank can measure the delay of all.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without any measured steps."""
        self._clock = clock
        self._last: float | None = None
        self._alone: deque[float] = deque(maxlen=WINDOW)
        self._beside: list[float] = []

    def interrupt(self) -> None:
        """Exclude the current step, because its time includes other waits, such as that for an epoch's first batch."""
        self._last = None

    def resume(self) -> None:
        """Restart the timer for the next step, because the time so far (for example, a copy) is counted elsewhere."""
        if self._last is not None:
            self._last = self._clock()

    def step(self, *, beside: bool) -> None:
        """Count a step that has just ended, except the first one after `interrupt`.

        `beside`: a checkpoint was being written during part of the step.
        """
        now = self._clock()
        if self._last is not None:
            (self._beside.append if beside else self._alone.append)(now - self._last)
        self._last = now

    def take(self) -> float:
        """Return the total delay in seconds of the steps during a write, and reset it; 0 if few steps were measured."""
        steps, self._beside = self._beside, []
        if not steps or len(self._alone) < LEAST:
            return 0.0
        return max(0.0, sum(steps) - len(steps) * statistics.median(self._alone))
