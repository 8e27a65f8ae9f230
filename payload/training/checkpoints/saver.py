"""The checkpoints of one run: when they are due, what goes with the state, what they cost, and what is reported."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from agent.errors import ReportedError
from payload.training.checkpoints.policy import SavePolicy
from payload.training.checkpoints.step_costs import StepCosts
from payload.training.checkpoints.store import name_of
from payload.training.checkpoints.writer import CheckpointWriter, Missed, Written
from payload.training.progress import Progress
from payload.training.safetensors_io import Arrays


class CheckpointReports(Protocol):
    """What is told of each checkpoint, as `payload.training.reporting.checkpoint_reporter` tells it."""

    def written(self, checkpoint: Written, *, interval_s: float) -> None:
        """Report one that was written; from now on there is one each `interval_s` within epochs, 0: none."""

    def missed(self, checkpoint: Missed) -> None:
        """Report one that could not be written."""


class CheckpointSaver:
    """Save checkpoints as they are due. For rank 0 alone, but for `failed`.

    Rank 0 decides by its own clock, and no other rank takes part: after a step all have the same weights, and what a
    checkpoint keeps besides them is rank 0's.
    """

    def __init__(
        self,
        writer: CheckpointWriter,
        policy: SavePolicy,
        *,
        copy: Callable[[], Arrays],
        settings: Mapping[str, Any],
        reports: CheckpointReports,
        costs: StepCosts | None = None,
    ) -> None:
        """Save what `copy` returns, with the settings."""
        self._writer, self._policy, self._reports = writer, policy, reports
        self._copy, self._settings = copy, settings
        self._costs = costs or StepCosts()
        self._was_writing = False
        self._unsaved: ReportedError | None = None

    @property
    def failed(self) -> bool:
        """Return whether a failure that ends the run has not been raised yet."""
        return self._writer.failed

    def save(self, progress: Progress, accuracy: float | None = None) -> None:
        """Copy the variables and begin to write them; report what became of the one before."""
        self._writer.save(progress, self._copy, settings=self._settings, accuracy=accuracy)
        self._settle()
        self._policy.saved()
        self._costs.resume()
        self._was_writing = True

    def begin_epoch(self) -> None:
        """Leave the first step of an epoch, which waits for its images, out of what steps take."""
        self._costs.interrupt()

    def after_step(self, progress: Progress, *, is_last: bool) -> None:
        """Count a step; save if the clock says that a checkpoint is due, but not after the last step of an epoch."""
        writing = self._writer.writing
        self._costs.step(beside=writing or self._was_writing)
        self._was_writing = writing
        if not writing:
            self._settle()
        if not is_last and self._policy.within_epoch():
            self.save(progress)

    def save_after_epoch(self, progress: Progress, accuracy: float) -> None:
        """Save if a checkpoint is due after this epoch, or by the clock. Raises ReportedError for what ends the run."""
        if self._policy.after_epoch(progress.epoch, accuracy) or self._policy.within_epoch():
            self.save(progress, accuracy)
        self._writer.check()

    def save_stopped(self, progress: Progress) -> str:
        """Save in the middle of an epoch, wait until it is written, and return its name. Raises ReportedError."""
        self.save(progress)
        self.finish()
        return name_of(progress)

    def finish(self) -> None:
        """Wait until the last checkpoint is written. Raises ReportedError where it could not be."""
        self._writer.finish()
        self._settle()
        if self._unsaved:
            error, self._unsaved = self._unsaved, None
            raise error

    def _settle(self) -> None:
        """Report what has been written or missed, and let the policy know the cost."""
        for result in self._writer.results():
            slowed_s = self._costs.take()
            if isinstance(result, Missed):
                self._unsaved = result.error
                self._reports.missed(result)
                continue
            self._unsaved = None
            written = dataclasses.replace(result, slowed_s=slowed_s)
            self._policy.wrote(cost_s=written.cost_s, written_s=written.written_s)
            self._reports.written(written, interval_s=self._policy.interval_s)
