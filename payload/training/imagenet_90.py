"""The 90 epochs of ImageNet by which AWS's deep-learning-models trained ResNet-50 with Horovod to over 75.5% top-1.

Published for 8 nodes of 8 GPUs (p3.16xlarge) with 256 images a GPU; from 128 GPUs on with LARC. Standard library only.
"""

from __future__ import annotations

import dataclasses
from typing import Final

EPOCHS: Final = 90
BATCH_PER_GPU: Final = 256
FIRST_RATE: Final = 0.001
"""Rate at which the warm-up begins."""
RATE_PER_256_IMAGES: Final = 0.1
LARC_RATE: Final = 3.7
LARC_FROM_GPUS: Final = 128
DECAY_POWER: Final = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Hold rate and optimizer for one number of GPUs."""

    gpus: int
    batch_per_gpu: int
    peak_rate: float
    """Rate at the end of the warm-up."""
    warmup_epochs: int
    momentum: float
    weight_decay: float
    loss_scale: int
    """By which the loss is multiplied before gradients are taken in float16."""
    larc_eta: float | None
    """Trust coefficient of LARC; None: plain momentum."""

    def rate(self, epoch: float) -> float:
        """Return the learning rate at an epoch from 0 to 90: a line up, then a parabola down to zero.

        Raises ValueError outside the run.
        """
        if not 0 <= epoch <= EPOCHS:
            raise ValueError(f"epoch {epoch:g}: the run has epochs 0 to {EPOCHS}")
        if epoch < self.warmup_epochs:
            return FIRST_RATE + (self.peak_rate - FIRST_RATE) * epoch / self.warmup_epochs
        left = (EPOCHS - epoch) / (EPOCHS - self.warmup_epochs)
        return float(self.peak_rate * left**DECAY_POWER)


def settings_for(gpus: int, *, batch_per_gpu: int = BATCH_PER_GPU) -> Settings:
    """Return the published settings for so many GPUs; the rate follows the global batch, but not with LARC.

    Raises ValueError for fewer than one GPU or image.
    """
    if gpus < 1 or batch_per_gpu < 1:
        raise ValueError(f"{gpus} GPUs with {batch_per_gpu} images each: must be at least 1")
    if gpus >= LARC_FROM_GPUS:
        return Settings(
            gpus=gpus,
            batch_per_gpu=batch_per_gpu,
            peak_rate=LARC_RATE,
            warmup_epochs=5,
            momentum=0.977,
            weight_decay=5e-4,
            loss_scale=256,
            larc_eta=0.013,
        )
    return Settings(
        gpus=gpus,
        batch_per_gpu=batch_per_gpu,
        peak_rate=RATE_PER_256_IMAGES * gpus * batch_per_gpu / 256,
        warmup_epochs=10,
        momentum=0.9,
        weight_decay=1e-4,
        loss_scale=1024,
        larc_eta=None,
    )
