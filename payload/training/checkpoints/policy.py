"""When a checkpoint is due, and which checkpoints are retained. Standard library only."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping


@dataclasses.dataclass(kw_only=True)
class SavePolicy:
    """When to save: after epochs, and within them by the clock."""

    epochs: int
    """Epochs between checkpoints."""
    last_epoch: int
    """The epoch that always ends with a checkpoint."""
    minutes: float = 0.0
    """Minutes between checkpoints within an epoch; 0: none."""
    keep_best: bool = False
    """Whether an epoch that is better than all before also ends with one."""
    best: float | None = None
    """Best accuracy so far; None where there is none."""
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._last = self.clock()

    def after_epoch(self, epoch: int, accuracy: float) -> bool:
        """Return whether one is due after this epoch, counted from 1, and remember its accuracy."""
        is_best = self.best is None or accuracy > self.best
        if is_best:
            self.best = accuracy
        return epoch % self.epochs == 0 or epoch == self.last_epoch or (self.keep_best and is_best)

    def within_epoch(self) -> bool:
        """Return whether one is due by the clock."""
        return self.minutes > 0 and self.clock() - self._last >= 60 * self.minutes

    def saved(self) -> None:
        """Restart the clock: a checkpoint has just been taken."""
        self._last = self.clock()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retention:
    """Which checkpoints are retained: the newest and, on request, the one of the best accuracy."""

    newest: int
    """How many of the newest stay: more than one, so that a damaged one has a predecessor."""
    best: bool = False
    """Whether the one of the best accuracy stays too; of equals, the newest."""

    def __post_init__(self) -> None:
        if self.newest < 1:
            raise ValueError(f"newest = {self.newest}: must be at least 1")

    def kept(self, accuracies: Mapping[str, float | None]) -> set[str]:
        """Return which to retain of checkpoints whose names sort by age; None: its accuracy was not measured."""
        names = sorted(accuracies, reverse=True)
        kept = set(names[: self.newest])
        measured = {name: accuracy for name in names if (accuracy := accuracies[name]) is not None}
        if self.best and measured:
            kept.add(max(measured, key=lambda name: (measured[name], name)))
        return kept
