"""The time of training steps, and of the waits for images in it. Standard library only."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

REPORTED_FROM: Final = 0.05
"""Fraction of the training time from which a wait is reported."""


class StepTimer:
    """Measure the steps of one epoch, and nothing between epochs."""

    def __init__(self) -> None:
        """Start."""
        self._last = time.monotonic()
        self.seconds = 0.0
        """Since the start, until the end of the last step."""
        self.waited_s = 0.0
        """How much of them this rank waited for its images."""
        self.last_wait_s = 0.0
        """How long it waited for those of the last step."""
        self.images = 0
        """Images over all ranks."""

    @property
    def images_per_s(self) -> float:
        """Return images over all ranks per second."""
        return self.images / max(self.seconds, 1e-9)

    def awaited(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches, and time the wait for each."""
        source = iter(batches)
        while True:
            began = time.monotonic()
            batch = next(source, None)
            if batch is None:  # not waited for: the epoch is over
                return
            self.last_wait_s = time.monotonic() - began
            self.waited_s += self.last_wait_s
            yield batch

    def step(self, size: int) -> float:
        """Count a step of `size` images over all ranks; return its time, s, with the wait for its images."""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        self.seconds += seconds
        self.images += size
        return seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataWait:
    """The rank that waited longest for its images; the others waited for it within the step."""

    rank: int
    host: str
    seconds: float
    fraction: float
    """Of the training time, 0 to 1."""

    @classmethod
    def longest(cls, waits: Sequence[float], hosts: Sequence[str], training_s: float) -> DataWait:
        """Return the longest of the waits of all ranks, s, in `training_s` of training."""
        rank = max(range(len(waits)), key=waits.__getitem__)
        fraction = min(1.0, waits[rank] / training_s) if training_s else 0.0
        return cls(rank=rank, host=hosts[rank], seconds=waits[rank], fraction=fraction)

    @property
    def matters(self) -> bool:
        """Return whether it is long enough to report."""
        return self.fraction >= REPORTED_FROM

    def __str__(self) -> str:
        return f"{self.fraction:.0%} of the time rank {self.rank} ({self.host}) waited for images"


@dataclasses.dataclass(kw_only=True)
class RunTotals:
    """Time and images of all epochs that this process took."""

    training_seconds: float = 0.0
    """Wall time within training steps."""
    images: int = 0
    """Images over all ranks."""
    epoch_seconds: list[float] = dataclasses.field(default_factory=list)
    """Wall time of each epoch, evaluation included."""
    data_wait_seconds: float = 0.0
    """Sum over the epochs of how long the rank that waited longest waited for images."""
    checkpoint_seconds: float = 0.0
    """Training time that checkpoints took, on rank 0."""
    checkpoints_missed: list[str] = dataclasses.field(default_factory=list)
    """Checkpoints that could not be written, each with the reason, on rank 0."""

    @property
    def images_per_s(self) -> float:
        """Return training images over all ranks per second of training steps."""
        return self.images / self.training_seconds if self.training_seconds else 0.0
