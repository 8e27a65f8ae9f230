"""Every setting of a training run, declared once: type, default, unit and bounds. Standard library only.

The command line (`payload.settings.parser`), the recipes and the documentation are made from these declarations.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from payload.settings.groups import (
    AugmentationSettings,
    DataSettings,
    MachineSettings,
    OptimizationSettings,
    OutputSettings,
    PrecisionSettings,
    ScheduleSettings,
    StepSpan,
    parse_checkpoint_dir,
)
from payload.settings.image_phases import parse_phases
from payload.settings.rates import parse_pieces
from payload.settings.rules import SettingError, check_fields, flag_of

__all__ = ["GROUPS", "SETTINGS_FILE", "SettingError", "Settings", "flag_of"]

SETTINGS_FILE: Final = "settings.json"
"""In the directory of a run; `payload.training.export.model_spec` writes it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(
    DataSettings,
    ScheduleSettings,
    OptimizationSettings,
    AugmentationSettings,
    PrecisionSettings,
    OutputSettings,
    MachineSettings,
):
    """All settings of one run, each valid by itself and together."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.image_phases:
            parse_phases(self.image_phases, smallest_crop=self.smallest_crop, rectangular=self.rectangular_validation)
        if self.rate_phases:
            parse_pieces(self.rate_phases, self.total_epochs)
        elif self.decay == "step" and not self.decay_epochs:
            raise SettingError("--decay", "step", "needs the epochs of its steps, as --decay-epochs 30,60,80")
        if list(self.decay_epochs) != sorted(set(self.decay_epochs)):
            raise SettingError("--decay-epochs", ",".join(map(str, self.decay_epochs)), "must rise")
        StepSpan.parse(self.profile_steps)
        parse_checkpoint_dir(self.checkpoint_dir)

    @property
    def total_epochs(self) -> int:
        """Return the epochs of a run, those with changed images included."""
        return self.epochs + max(0, self.augmented_epochs)


GROUPS = (
    DataSettings,
    ScheduleSettings,
    OptimizationSettings,
    AugmentationSettings,
    PrecisionSettings,
    OutputSettings,
    MachineSettings,
)
"""In the order in which they are shown."""
