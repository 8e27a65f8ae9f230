"""How a run begins: anew, or from the newest checkpoint that is whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from agent.errors import ReportedError
from payload.settings import Settings
from payload.training.checkpoints.location import storage_for
from payload.training.checkpoints.retention import Retention
from payload.training.checkpoints.sameness import changes
from payload.training.checkpoints.store import Checkpoint, CheckpointStore, DamagedCheckpointError
from payload.training.progress import Progress
from payload.training.safetensors_io import Arrays
from payload.training.schedule import global_batch


class Restorable(Protocol):
    """What a checkpoint is read into: `payload.training.state.TrainState`, which needs TensorFlow."""

    def restore(self, arrays: Arrays) -> None:
        """Set all variables, or none. Raises ReportedError where the arrays are those of another network."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartPoint:
    """Say where a run begins."""

    progress: Progress
    resumed_from: str | None = None
    """Name of the checkpoint; None: anew."""
    changes: tuple[str, ...] = ()
    """Settings that differ from those of the checkpoint's run, each with its flag."""
    faults: tuple[str, ...] = ()
    """Damaged checkpoints that were passed over."""
    best_accuracy: float | None = None
    """Of the checkpoints that are there, where the best is kept."""


def store_for(settings: Settings, run_dir: Path) -> CheckpointStore:
    """Name the place of a run's checkpoints. Raises SettingError."""
    retention = Retention(newest=settings.keep_checkpoints, best=settings.keep_best)
    return CheckpointStore(storage_for(settings.checkpoint_dir, run_dir), retention)


def with_batch_of_resumed(settings: Settings, store: CheckpointStore, *, ranks: int) -> Settings:
    """Return the settings with the images a step of the run that goes on, where the number of ranks would change them.

    A batch that is given, or is that of phases, stays; then it must be the run's own.
    """
    if settings.global_batch or settings.image_phases:
        return settings
    before = store.global_batch()
    if before is None or before == global_batch(settings, ranks):
        return settings
    print(
        f"payload.train: goes on with {before} images a step, as before; on this number of ranks, {ranks}, it would "
        f"begin with {global_batch(settings, ranks)}",
        flush=True,
    )
    return dataclasses.replace(settings, global_batch=before)


def begin(
    state: Restorable, store: CheckpointStore, fresh: Progress, *, settings: Mapping[str, Any], wanted: bool
) -> StartPoint:
    """Restore the newest valid checkpoint on this rank, to be broadcast from here.

    Begins with `fresh` where none is wanted or there is none. `settings`: those that checkpoints keep. Raises
    ReportedError where a run's checkpoints lie in the way, where all are damaged, or where the newest belongs to
    another run.
    """
    place = store.storage.address()
    if not wanted and store.names():
        raise ReportedError(f"{place} already holds checkpoints; give --resume, or a new --run-dir")
    store.storage.tidy()
    if not wanted:
        return StartPoint(progress=fresh)
    checkpoint, damaged = store.newest_valid()
    faults = tuple(str(fault) for fault in damaged)
    if checkpoint is None:
        if faults:
            raise ReportedError(
                f"none of {len(faults)} checkpoints in {place} is valid: {faults[0]}; give a new --run-dir"
            )
        return StartPoint(progress=fresh)
    changed = changes(checkpoint.header.settings, settings)
    restore_state(state, checkpoint)
    return StartPoint(
        progress=checkpoint.progress,
        resumed_from=checkpoint.name,
        changes=tuple(changed),
        faults=faults,
        best_accuracy=store.best_accuracy() if store.retention.best else None,
    )


def restore_state(state: Restorable, checkpoint: Checkpoint) -> None:
    """Set all variables from a checkpoint. Raises DamagedCheckpointError where it is not of this network."""
    try:
        state.restore(checkpoint.arrays)
    except ReportedError as error:
        raise DamagedCheckpointError(checkpoint.address, str(error)) from None
