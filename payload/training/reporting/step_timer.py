"""Measure the time of training steps, including the waits for images. Standard library only."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

REPORTED_FROM: Final = 0.05
"""Minimum fraction of the training time at which a wait is reported."""


class StepTimer:
    """Measure the steps of one epoch, without the time between epochs."""

    def __init__(self) -> None:
        """Start the timer."""
        self._last = time.monotonic()
        self.seconds = 0.0
        """Seconds from the start to the end of the last step."""
        self.waited_s = 0.0
        """Part of `seconds` that this rank waited for its images."""
        self.last_wait_s = 0.0
        """Seconds that this rank waited for the images of the last step."""
        self.images = 0
        """Number of images over all ranks."""

    @property
    def images_per_s(self) -> float:
        """Return the number of images over all ranks per second."""
        return self.images / max(self.seconds, 1e-9)

    def awaited(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches, and measure the wait for each batch."""
        source = iter(batches)
        while True:
            began = time.monotonic()
            batch = next(source, None)
            if batch is None:  # the end of the epoch is not a wait
                return
            self.last_wait_s = time.monotonic() - began
            self.waited_s += self.last_wait_s
            yield batch

    def step(self, size: int) -> float:
        """Count a step of `size` images over all ranks; return its time in seconds, including the wait for images."""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        self.seconds += seconds
        self.images += size
        return seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataWait:
    """The longest wait of a rank for its images. The other ranks waited for that rank within their steps."""

    rank: int
    host: str
    seconds: float
    fraction: float
    """Fraction of the training time, 0 to 1."""

    @classmethod
    def longest(cls, waits: Sequence[float], hosts: Sequence[str], training_s: float) -> DataWait:
        """Return the longest wait. `waits`: each rank's wait in seconds. `training_s`: the training time."""
        rank = max(range(len(waits)), key=waits.__getitem__)
        fraction = min(1.0, waits[rank] / training_s) if training_s else 0.0
        return cls(rank=rank, host=hosts[rank], seconds=waits[rank], fraction=fraction)

    @property
    def matters(self) -> bool:
        """Return whether the wait is long enough to report."""
        return self.fraction >= REPORTED_FROM

    def __str__(self) -> str:
        return f"{self.fraction:.0%} of the time rank {self.rank} ({self.host}) waited for images"


@dataclasses.dataclass(kw_only=True)
class RunTotals:
    """Total time and images of all epochs that this process ran."""

    training_seconds: float = 0.0
    """Wall time in training steps."""
    images: int = 0
    """Number of images over all ranks."""
    epoch_seconds: list[float] = dataclasses.field(default_factory=list)
    """Wall time of each epoch, including evaluation."""
    data_wait_seconds: float = 0.0
    """Seconds of waiting for images. Each epoch counts with the rank that waited longest."""
    checkpoint_seconds: float = 0.0
    """Training time lost to checkpoints, on rank 0."""
    checkpoints_missed: list[str] = dataclasses.field(default_factory=list)
    """Checkpoints that could not be written, each with the reason, on rank 0."""

    @property
    def images_per_s(self) -> float:
        """Return the number of training images over all ranks per second of training steps."""
        return self.images / self.training_seconds if self.training_seconds else 0.0
