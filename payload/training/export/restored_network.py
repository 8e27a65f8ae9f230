"""Rebuild the network of a run from a checkpoint."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from agent.errors import ReportedError
from payload.models.registry import network
from payload.training.checkpoints.checkpoint_files import (
    Checkpoint,
    CheckpointStore,
    DamagedCheckpointError,
    read_checkpoint,
    store_for,
)
from payload.training.checkpoints.resume import restore_state
from payload.training.export.settings_file import ModelSpec, read_model_spec
from payload.training.optimizers.optimizer import make_optimizer
from payload.training.train_state import TrainState


class NoCheckpointError(ReportedError, LookupError):
    """A run has no usable checkpoint."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Restored:
    """The state of a run, restored from a checkpoint."""

    model_spec: ModelSpec
    state: TrainState
    checkpoint: str
    """Name of the checkpoint."""
    steps: int
    """Number of training steps before the checkpoint."""
    faults: tuple[str, ...]
    """Damaged checkpoints that were skipped."""


def restore(run_dir: Path, name: str = "") -> Restored:
    """Build a run's network and optimizer, and set their variables from a checkpoint.

    `name`: name of the checkpoint; "": the newest valid one. Raises NoCheckpointError if there is no such checkpoint or
    it is damaged, and another ReportedError if the settings or a bucket cannot be read, or the checkpoint belongs to
    another network.
    """
    model_spec = read_model_spec(run_dir)
    checkpoint, faults = _checkpoint(store_for(model_spec.settings, run_dir), name)
    settings = model_spec.settings
    model = network(settings.network).build(
        model_spec.input_shape, len(model_spec.labels), precision=settings.precision, zero_gamma=settings.zero_gamma
    )
    state = TrainState(model=model, optimizer=make_optimizer(settings, model))
    restore_state(state.restore, checkpoint)
    return Restored(
        model_spec=model_spec,
        state=state,
        checkpoint=checkpoint.name,
        steps=checkpoint.progress.total_steps,
        faults=faults,
    )


def _checkpoint(store: CheckpointStore, name: str) -> tuple[Checkpoint, tuple[str, ...]]:
    names, place = store.names(), store.storage.address()
    if name:
        if name not in names:
            there = f"there are {', '.join(names)}" if names else "there are no checkpoints"
            raise NoCheckpointError(f"{place}: no checkpoint {name}; {there}")
        try:
            return read_checkpoint(store.storage, name), ()
        except DamagedCheckpointError as fault:
            advice = "choose another --checkpoint, or fetch them again with `fab fetch --checkpoints`"
            raise NoCheckpointError(f"{fault}; {advice}") from fault
    checkpoint, damaged = store.newest_valid()
    if checkpoint is None:
        rest = (
            f"none of {len(names)} can be read: {damaged[0]}; fetch them again with `fab fetch --checkpoints`"
            if damaged
            else "download checkpoints with `fab fetch --checkpoints`"
        )
        raise NoCheckpointError(f"{place}: no checkpoint to use; {rest}")
    return checkpoint, tuple(str(fault) for fault in damaged)
