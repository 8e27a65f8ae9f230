"""The learning rate over a run: linear warm-up, then a cosine down to zero. Standard library only.

The rate is a function of the step alone, and steps are counted over the global batch, so every number of ranks that
shares a global batch sees the same rates.
"""

from __future__ import annotations

import dataclasses
import math


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmupCosine:
    """Climb from `start` to `peak`, then fall to zero at the end of the run."""

    start: float
    """Rate before the first step: the unscaled one, since a large rate on fresh weights diverges."""
    peak: float
    """Rate at the end of the warm-up: scaled by the global batch."""
    warmup_steps: int
    total_steps: int

    def __post_init__(self) -> None:
        if self.start < 0 or self.peak <= 0:
            raise ValueError(f"rates from {self.start} to {self.peak}: must be positive")
        if self.total_steps < 1:
            raise ValueError(f"total_steps = {self.total_steps}: must be at least 1")
        if not 0 <= self.warmup_steps <= self.total_steps:
            raise ValueError(f"warmup_steps = {self.warmup_steps}: must be 0 to total_steps = {self.total_steps}")

    def rate(self, step: int) -> float:
        """Return the rate of `step`, counted from 0."""
        if step < self.warmup_steps:
            return self.start + (self.peak - self.start) * (step + 1) / self.warmup_steps
        decay_steps = self.total_steps - self.warmup_steps
        done = min((step - self.warmup_steps) / decay_steps, 1.0) if decay_steps else 1.0
        return self.peak * 0.5 * (1 + math.cos(math.pi * done))


def schedule_for(
    *, learning_rate: float, peak: float, warmup_epochs: float, epochs: int, steps_per_epoch: int
) -> WarmupCosine:
    """Lay the schedule over a run; a warm-up longer than half of the run is cut to half of it.

    A short trial run (`--epochs 1`) would otherwise end before its rate has climbed.
    """
    total = epochs * steps_per_epoch
    warmup = min(round(warmup_epochs * steps_per_epoch), total // 2)
    return WarmupCosine(start=min(learning_rate, peak), peak=peak, warmup_steps=warmup, total_steps=total)
