"""What a checkpoint costs the steps: the time they are longer while it is written. Standard library only."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import Final

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
