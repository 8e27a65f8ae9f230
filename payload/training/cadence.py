"""When a checkpoint is due. Standard library only."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable


@dataclasses.dataclass(kw_only=True)
class Cadence:
    """Decide on one rank when to save: after epochs, and within them by the clock."""

    epochs: int
    """Epochs between checkpoints."""
    last_epoch: int
    """The one that always ends with a checkpoint."""
    minutes: float = 0.0
    """Minutes between checkpoints within an epoch; 0: none."""
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._last = self.clock()

    def after_epoch(self, epoch: int, *, is_best: bool = False) -> bool:
        """Tell whether one is due after this epoch, counted from 1. `is_best`: it is wanted for its accuracy."""
        return epoch % self.epochs == 0 or epoch == self.last_epoch or is_best

    def within_epoch(self) -> bool:
        """Tell whether one is due by the clock."""
        return self.minutes > 0 and self.clock() - self._last >= 60 * self.minutes

    def saved(self) -> None:
        """Count the minutes anew: one has just been taken."""
        self._last = self.clock()
