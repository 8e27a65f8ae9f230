"""How a run begins: anew, or from the newest valid checkpoint, and with which settings."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from agent.errors import ReportedError
from payload.settings import SettingError, Settings, flag_of
from payload.settings.groups import MachineSettings, OutputSettings
from payload.training.checkpoints.store import Checkpoint, CheckpointStore, DamagedCheckpointError
from payload.training.progress import Progress
from payload.training.safetensors_io import Arrays
from payload.training.schedule import global_batch

FIXED_SETTINGS: Final = (
    # What the variables are.
    *("network", "classes", "optimizer", "precision"),
    # What the position counts: which images lie behind it, and which come next.
    *("dataset", "validation_fraction", "train_limit", "seed", "global_batch", "image_phases"),
)
"""Must be those of the run that wrote the checkpoint."""
FREE_SETTINGS: Final = frozenset(
    {
        *(field.name for group in (OutputSettings, MachineSettings) for field in dataclasses.fields(group)),
        # The batch of all ranks together is compared, not how it comes about.
        *("batch_per_rank", "global_batch_limit", "accumulation_steps"),
        *("cache", "decode_threads", "corrupt", "xla"),
    }
)
"""Change nothing of what is learned, but for the last bits of sums. All others may change too, which is reported."""

Restore = Callable[[Arrays], None]
"""Sets all variables, or none; raises ReportedError where the arrays are those of another network."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartPoint:
    """Where a run begins."""

    progress: Progress
    resumed_from: str | None = None
    """Name of the checkpoint; None: from the beginning."""
    changes: tuple[str, ...] = ()
    """Settings that differ from those of the checkpoint's run, each with its flag."""
    faults: tuple[str, ...] = ()
    """Damaged checkpoints that were skipped."""
    best_accuracy: float | None = None
    """Of the existing checkpoints, where the best is retained."""


def with_batch_of_resumed(settings: Settings, store: CheckpointStore, *, ranks: int) -> Settings:
    """Return the settings with the batch of the run that is resumed, where the number of ranks would change it.

    A batch given by the user or by phases stays; then it must be that of the run.
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


def restore_or_begin(
    restore: Restore, store: CheckpointStore, fresh: Progress, *, settings: Mapping[str, Any], resume: bool
) -> StartPoint:
    """Restore the newest valid checkpoint on this rank, to be broadcast from here.

    Begins with `fresh` where no resumption is wanted, there is no checkpoint, or all are lost: a run whose first
    checkpoint is damaged would otherwise never end by itself. `settings`: those that checkpoints keep. From here on
    this process alone may write to the store (`payload.training.checkpoints.store`). Raises ReportedError where
    checkpoints exist but no resumption is wanted, where none can be read but one may be later or by another version,
    where the newest belongs to another run, or where nothing can be written.
    """
    address = store.storage.address()
    if not resume and store.names():
        raise ReportedError(f"{address} already holds checkpoints; give --resume, or a new --run-dir")
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
                    f"none of {len(damaged)} checkpoints in {address} can be read, but one may be again: {fault}; "
                    "resume once it can, with the version that wrote it, or begin anew with a new --run-dir"
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
    """Set all variables from a checkpoint. Raises DamagedCheckpointError where it is not of this network."""
    try:
        restore(checkpoint.arrays)
    except ReportedError as error:
        raise DamagedCheckpointError(checkpoint.address, str(error)) from None


def checkpoint_settings(settings: Settings, global_batch: int) -> dict[str, Any]:
    """Return the settings that a checkpoint keeps, as values of JSON. `global_batch`: that of the first epoch."""
    kept = {name: value for name, value in dataclasses.asdict(settings).items() if name not in FREE_SETTINGS}
    found: dict[str, Any] = json.loads(json.dumps({**kept, "global_batch": global_batch}))
    return found


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Compare the settings of a checkpoint with those of the run that is resumed; return the changes, by flag.

    Raises SettingError for one that must not. A setting that only one of the two has is ignored: it came or went with
    another version.
    """
    different = [name for name in before if name in now and before[name] != now[name]]
    for name in FIXED_SETTINGS:
        if name in different:
            rule = f"the run to resume had {before[name]}; give {flag_of(name)} {before[name]}, or a new --run-dir"
            raise SettingError(flag_of(name), now[name], rule)
    return [f"{flag_of(name)} {_text(now[name])} (was {_text(before[name])})" for name in different]


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
