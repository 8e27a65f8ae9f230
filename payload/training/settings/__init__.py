"""Every setting of a training run, declared once: type, default, unit and bounds. Standard library only.

The command line (`payload.training.config`), the recipes and the documentation are made from these declarations.
"""

from __future__ import annotations

import dataclasses

from payload.training.settings.augmentation import AugmentationSettings
from payload.training.settings.data import DataSettings
from payload.training.settings.keeping import KeepingSettings
from payload.training.settings.machine import MachineSettings
from payload.training.settings.optimization import OptimizationSettings
from payload.training.settings.precision import PrecisionSettings
from payload.training.settings.rules import SettingError, check, flag_of
from payload.training.settings.schedule import ScheduleSettings

__all__ = ["GROUPS", "SettingError", "Settings", "flag_of"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(
    DataSettings,
    ScheduleSettings,
    OptimizationSettings,
    AugmentationSettings,
    PrecisionSettings,
    KeepingSettings,
    MachineSettings,
):
    """Hold all settings of one run, each validated by itself."""

    def __post_init__(self) -> None:
        check(self)


GROUPS = (
    DataSettings,
    ScheduleSettings,
    OptimizationSettings,
    AugmentationSettings,
    PrecisionSettings,
    KeepingSettings,
    MachineSettings,
)
"""In the order in which they are shown."""
