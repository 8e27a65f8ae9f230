"""The number formats of computation and communication."""

from __future__ import annotations

import dataclasses
from typing import Final

from payload.settings.rules import setting

FLOAT32: Final = "float32"
NUMBER_FORMATS: Final = (FLOAT32, "bfloat16", "float16")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrecisionSettings:
    """Choose number formats."""

    precision: str = setting(FLOAT32, "number format of the layers; weights stay float32", choices=NUMBER_FORMATS)
    loss_scale: float = setting(
        0.0, "factor of the loss in float16; 0: as large as gradients allow", low=0, high=1 << 24
    )
    compression: str = setting("none", "number format of gradients between ranks", choices=("none", "fp16"))
    xla: bool = setting(False, "compile forward and backward pass by XLA; the allreduce stays outside")
