"""Which settings a run may change when it goes on from a checkpoint. Standard library only."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final

from payload.settings import SettingError, Settings, flag_of
from payload.settings.keeping import KeepingSettings
from payload.settings.machine import MachineSettings

SAME: Final = (
    # What the variables are.
    *("network", "classes", "optimizer", "precision"),
    # What the position counts: which images lie behind it, and which come next.
    *("dataset", "validation_fraction", "train_limit", "seed", "global_batch", "image_phases"),
)
"""Must be those of the run that wrote the checkpoint."""
FREE: Final = frozenset(
    {
        *(field.name for group in (KeepingSettings, MachineSettings) for field in dataclasses.fields(group)),
        # The batch of all ranks together is compared, not how it comes about.
        *("batch_per_rank", "global_batch_limit", "accumulation_steps"),
        *("cache", "decode_threads", "corrupt", "xla"),
    }
)
"""Change nothing of what is learned, but for the last bits of sums. All others may change too, which is said."""


def checkpoint_settings(settings: Settings, global_batch: int) -> dict[str, Any]:
    """Return the settings that a checkpoint keeps, as values of JSON. `global_batch`: that of the first epoch."""
    kept = {name: value for name, value in dataclasses.asdict(settings).items() if name not in FREE}
    found: dict[str, Any] = json.loads(json.dumps({**kept, "global_batch": global_batch}))
    return found


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Compare the settings of a checkpoint with those of the run that goes on; return what changes, by flag.

    Raises SettingError for one that must not. A setting that one of both does not know is left aside: it came, or
    went, with another version.
    """
    different = [name for name in before if name in now and before[name] != now[name]]
    for name in SAME:
        if name in different:
            rule = f"the run to resume had {before[name]}; give {flag_of(name)} {before[name]}, or a new --run-dir"
            raise SettingError(flag_of(name), now[name], rule)
    return [f"{flag_of(name)} {_text(now[name])} (was {_text(before[name])})" for name in different]


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
