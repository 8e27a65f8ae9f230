"""What stays the same during one run, and how one ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from payload.data.types import Parts, View
from payload.recipes.config import TrainConfig
from payload.settings import Settings
from payload.training.checkpoints.cadence import Cadence
from payload.training.checkpoints.writer import CheckpointWriter
from payload.training.distributed import Ranks
from payload.training.progress import Progress
from payload.training.rank_setup import Arrangement
from payload.training.reporting.reporter import Reporter
from payload.training.schedule import Schedule
from payload.training.state import TrainState, image_size


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """Hold what stays the same during one run."""

    config: TrainConfig
    data: Parts
    ranks: Ranks
    arrangement: Arrangement
    """What was chosen for this rank."""
    placements: tuple[str, ...]
    """Cores, memory and GPU of each rank, by rank, in words."""
    state: TrainState
    writer: CheckpointWriter
    """Of checkpoints; only rank 0 has anything to write."""
    cadence: Cadence
    """When checkpoints are due, on rank 0."""
    reporter: Reporter
    schedule: Schedule
    train_step: Callable[..., Any]
    evaluation_step: Callable[..., Any]
    stop_requested: Callable[[], bool]

    @property
    def settings(self) -> Settings:
        """Return the settings of the run."""
        return self.config.settings

    @property
    def evaluated(self) -> str:
        """Name the part that is evaluated on after each epoch."""
        return "validation" if self.data.validation else "test"

    def training_view(self, epoch: int) -> View:
        """Say how training images are looked at in an epoch, counted from 0."""
        settings, phase = self.settings, self.schedule.phase(epoch)
        size = self._size(phase.size)
        if epoch < self.schedule.augmented_from:
            return View(size=size)
        return View(
            size=size,
            smallest_crop=phase.smallest_crop,
            flip=settings.flip,
            rotation_deg=settings.rotation_deg,
            shift_fraction=settings.shift_fraction,
            zoom_fraction=settings.zoom_fraction,
        )

    def test_view(self, epoch: int) -> View:
        """Say how test images are looked at after an epoch, counted from 0."""
        phase = self.schedule.phase(epoch)
        return View(size=self._size(self.settings.test_size or phase.size), rectangular=phase.rectangular)

    def _size(self, side: int) -> tuple[int, int]:
        return image_size(self.data, side)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """Say how a run ended: with a result, or stopped with a checkpoint from which it can go on."""

    progress: Progress
    stopped: bool
