"""Every setting of a training run, declared once: type, default, unit and bounds. Standard library only.

The command line (`payload.training.config`), the recipes and the documentation are made from these declarations.
"""

from __future__ import annotations

import dataclasses

from payload.settings.augmentation import AugmentationSettings
from payload.settings.data import DataSettings
from payload.settings.keeping import KeepingSettings
from payload.settings.machine import MachineSettings
from payload.settings.optimization import OptimizationSettings
from payload.settings.precision import PrecisionSettings
from payload.settings.rules import SettingError, check, flag_of
from payload.settings.schedule import ScheduleSettings

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
