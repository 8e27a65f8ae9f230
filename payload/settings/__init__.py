"""Declare every setting of a training run: type, default, unit and bounds. Standard library only.

The command line (`payload.settings.parser`), recipes and documentation are based on these declarations.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from payload.settings.image_phases import parse_phases
from payload.settings.learning_rate import parse_pieces
from payload.settings.training import (
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
from payload.settings.validation import SettingError, check_fields, flag_of

__all__ = ["GROUPS", "SETTINGS_FILE", "SettingError", "Settings", "flag_of"]

SETTINGS_FILE: Final = "settings.json"
"""Settings file in a run's directory, written by `payload.training.export.settings_file`."""


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
    """All settings of one run. Raises SettingError for an invalid value or combination of values."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.image_phases:
            parse_phases(self.image_phases, smallest_crop=self.smallest_crop, rectangular=self.rectangular_validation)
        if self.rate_phases:
            parse_pieces(self.rate_phases, self.total_epochs)
        elif self.decay == "step" and not self.decay_epochs:
            raise SettingError("--decay", "step", "needs --decay-epochs, for example --decay-epochs 30,60,80")
        if list(self.decay_epochs) != sorted(set(self.decay_epochs)):
            raise SettingError(
                "--decay-epochs", ",".join(map(str, self.decay_epochs)), "must be ascending, without duplicates"
            )
        StepSpan.parse(self.profile_steps)
        parse_checkpoint_dir(self.checkpoint_dir)

    @property
    def total_epochs(self) -> int:
        """Return the number of epochs, including those with augmentation."""
        return self.epochs + max(0, self.augmented_epochs)


GROUPS: Final = Settings.__bases__
"""All groups, in display order."""
