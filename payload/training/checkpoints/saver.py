"""The checkpoints of one run: when they are due, what goes with the state, and what is reported of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from payload.training.checkpoints.policy import SavePolicy
from payload.training.checkpoints.store import name_of
from payload.training.checkpoints.writer import CheckpointWriter, Written
from payload.training.progress import Progress
from payload.training.safetensors_io import Arrays


class CheckpointSaver:
    """Save checkpoints as they are due. For rank 0 alone, but for `failed`."""

    def __init__(
        self,
        writer: CheckpointWriter,
        cadence: SavePolicy,
        *,
        copy: Callable[[], Arrays],
        settings: Mapping[str, Any],
        report: Callable[[Sequence[Written]], None],
    ) -> None:
        """Save what `copy` returns, with the settings; `report` gets what was written meanwhile."""
        self._writer, self._cadence = writer, cadence
        self._copy, self._settings, self._report = copy, settings, report

    @property
    def failed(self) -> bool:
        """Return whether a checkpoint could not be written, and the error has not been raised yet."""
        return self._writer.failed

    def save(self, progress: Progress, accuracy: float | None = None) -> None:
        """Copy the variables and begin to write them; report what was written meanwhile."""
        self._writer.save(progress, self._copy, settings=self._settings, accuracy=accuracy)
        self._cadence.saved()
        self._report(self._writer.written())

    def save_within_epoch(self, progress: Progress) -> None:
        """Save if the clock says that a checkpoint is due."""
        if self._cadence.within_epoch():
            self.save(progress)

    def save_after_epoch(self, progress: Progress, accuracy: float) -> None:
        """Save if a checkpoint is due after this epoch. Raises what failed meanwhile: ReportedError."""
        if self._cadence.after_epoch(progress.epoch, accuracy):
            self.save(progress, accuracy)
        self._writer.check()

    def save_stopped(self, progress: Progress) -> str:
        """Save in the middle of an epoch, wait until it is written, and return its name. Raises ReportedError."""
        self.save(progress)
        self.finish()
        return name_of(progress)

    def finish(self) -> None:
        """Wait until the last checkpoint is written. Raises ReportedError."""
        self._writer.finish()
        self._report(self._writer.written())
