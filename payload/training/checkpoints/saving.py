"""How a run keeps its checkpoints. Every function here is for rank 0 alone."""

from __future__ import annotations

from payload.training.checkpoints.sameness import lasting
from payload.training.checkpoints.store import name_of
from payload.training.context import Run
from payload.training.progress import Progress


def save(run: Run, progress: Progress, accuracy: float | None = None) -> None:
    """Copy the variables and begin to write them; report what was written meanwhile."""
    settings = lasting(run.settings, run.schedule.phase(0).global_batch)
    run.writer.save(progress, run.state.arrays, settings=settings, accuracy=accuracy)
    run.cadence.saved()
    run.reporter.written(run.writer.written())


def save_after_epoch(run: Run, progress: Progress, accuracy: float) -> None:
    """Begin to write a checkpoint when one is due after an epoch. Raises what failed meanwhile: ReportedError."""
    if run.cadence.after_epoch(progress.epoch, accuracy):
        save(run, progress, accuracy)
    run.writer.check()


def finish_saving(run: Run) -> None:
    """Wait until the last checkpoint is there. Raises ReportedError."""
    run.writer.finish()
    run.reporter.written(run.writer.written())


def save_stopped(run: Run, progress: Progress) -> None:
    """Write a checkpoint in the middle of an epoch, and say so. Raises ReportedError."""
    save(run, progress)
    finish_saving(run)
    run.reporter.stopped(progress, name_of(progress))
