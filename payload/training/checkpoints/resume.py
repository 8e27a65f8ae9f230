"""Start a run from the beginning or from the newest valid checkpoint, and check that its settings match."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from agent.errors import ReportedError
from payload.settings import SettingError, Settings, flag_of
from payload.settings.training import MachineSettings, OutputSettings
from payload.training.checkpoints.checkpoint_files import Checkpoint, CheckpointStore, DamagedCheckpointError
from payload.training.progress import Progress
from payload.training.safetensors_io import Arrays
from payload.training.schedule import global_batch

FIXED_SETTINGS: Final = (
    # These define the variables.
    *("network", "classes", "optimizer", "precision"),
    # These define the meaning of the position: the images already used, and the next ones.
    *("dataset", "validation_fraction", "train_limit", "seed", "global_batch", "image_phases"),
)
"""These settings must be the same as in the run that wrote the checkpoint."""
FREE_SETTINGS: Final = frozenset(
    {
        *(field.name for group in (OutputSettings, MachineSettings) for field in dataclasses.fields(group)),
        # Only the global batch is compared.
        *("batch_per_rank", "global_batch_limit", "accumulation_steps"),
        *("cache", "decode_threads", "corrupt", "xla"),
    }
)
"""These settings do not affect what is learned, except for rounding. Changes to all other settings are reported."""

Restore = Callable[[Arrays], None]
"""Sets all variables or none. Raises ReportedError if the arrays belong to another network."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartPoint:
    """The start of a run: its position, and the checkpoint it comes from."""

    progress: Progress
    resumed_from: str | None = None
    """Name of the checkpoint; None: the run starts from the beginning."""
    changes: tuple[str, ...] = ()
    """Settings that differ from the checkpoint's run, each with its flag."""
    faults: tuple[str, ...] = ()
    """Damaged checkpoints that were skipped."""
    best_accuracy: float | None = None
    """Best accuracy of the existing checkpoints, if the best one is retained."""


def with_batch_of_resumed(settings: Settings, store: CheckpointStore, *, ranks: int) -> Settings:
    """Return the settings with the batch of the run to resume, if another number of ranks would change it.

    Print a line in this case. A batch set by the user or by phases is kept here. `restore_or_begin` rejects it if it
    differs from the run's batch.
    """
    if settings.global_batch or settings.image_phases:
        return settings
    before = store.global_batch()
    if before is None or before == global_batch(settings, ranks):
        return settings
    print(
        f"payload.train: continuing with {before} images per step, as before; a new run on {ranks} ranks would use "
        f"{global_batch(settings, ranks)}",
        flush=True,
    )
    return dataclasses.replace(settings, global_batch=before)


def restore_or_begin(
    restore: Restore, store: CheckpointStore, fresh: Progress, *, settings: Mapping[str, Any], resume: bool
) -> StartPoint:
    """Restore the newest valid checkpoint on this rank; other ranks receive the state by broadcast.

    The run starts from `fresh` if `resume` is not set, there are no checkpoints, or all of them are lost. If a lost
    checkpoint were an error, a run with a damaged first checkpoint would fail at each restart. `restore` sets all
    variables. `settings`: the settings to compare with the checkpoint's. Incomplete checkpoints are removed. From here
    on, only this process may write to the store (`payload.training.checkpoints.checkpoint_files`).

    Raises ReportedError if checkpoints exist without `resume`; if none can be read now, but one might be readable later
    or by another version; if the newest belongs to another run; or if the store is not writable.
    """
    address = store.storage.address()
    if not resume and store.names():
        raise ReportedError(
            f"{address} already contains checkpoints; use --resume to continue from them, or "
            "another directory: --checkpoint-dir if you gave it, else --run-dir"
        )
    store.claim()
    store.storage.tidy()
    if not resume:
        return StartPoint(progress=fresh)
    checkpoint, damaged = store.newest_valid()
    faults = tuple(str(fault) for fault in damaged)
    if checkpoint is None:
        for fault in damaged:
            if not fault.is_lost:
                raise ReportedError(
                    f"none of {len(damaged)} checkpoints in {address} can be read, but one of them may still be "
                    f"intact: {fault.address}: {fault.fault}. Remove the cause and resume, or resume with the version "
                    "of deepcdk that wrote the checkpoint. To start again, use another "
                    "directory: --checkpoint-dir if you gave it, else --run-dir"
                )
        return StartPoint(progress=fresh, faults=faults)
    changed = changed_settings(checkpoint.header.settings, settings)
    restore_state(restore, checkpoint)
    return StartPoint(
        progress=checkpoint.progress,
        resumed_from=checkpoint.name,
        changes=tuple(changed),
        faults=faults,
        best_accuracy=store.best_accuracy() if store.retention.best else None,
    )


def restore_state(restore: Restore, checkpoint: Checkpoint) -> None:
    """Set all variables from a checkpoint. Raises DamagedCheckpointError if it belongs to another network."""
    try:
        restore(checkpoint.arrays)
    except ReportedError as error:
        advice = "use the settings and the version of deepcdk of the run that wrote it"
        raise DamagedCheckpointError(checkpoint.address, f"{error}; {advice}") from None


def checkpoint_settings(settings: Settings, global_batch: int) -> dict[str, Any]:
    """Return the settings to store in a checkpoint, as JSON values, without FREE_SETTINGS.

    `global_batch`: the first epoch's batch.
    """
    kept = {name: value for name, value in dataclasses.asdict(settings).items() if name not in FREE_SETTINGS}
    found: dict[str, Any] = json.loads(json.dumps({**kept, "global_batch": global_batch}))
    return found


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Compare a checkpoint's settings with those of the run to resume; return the changes: `--epochs 2 (was 1)`.

    Raises SettingError if a fixed setting changed. A setting in only one of the two is ignored, because it was added or
    removed in another version.
    """
    different = [name for name in before if name in now and before[name] != now[name]]
    for name in FIXED_SETTINGS:
        if name in different:
            had = _text(before[name])
            rule = f"the run to resume had {had}; give {flag_of(name)} {had}, or start a new run"
            raise SettingError(flag_of(name), _text(now[name]), rule)
    return [f"{flag_of(name)} {_text(now[name])} (was {_text(before[name])})" for name in different]


def _text(value: Any) -> str:
    return (",".join(map(str, value)) if isinstance(value, list) else str(value)) or '""'
