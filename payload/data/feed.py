"""What each training step of an epoch is fed with, on one rank."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from payload.data.augmentation import affine_transforms
from payload.data.dataset import Dataset
from payload.data.sharding import epoch_order, epoch_plan
from payload.training.settings import Settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepInput:
    """Name one step's images, and how each is moved."""

    indices: npt.NDArray[np.int32]
    """[slots]: positions in the training images."""
    weights: npt.NDArray[np.float32]
    """[slots]: 0 marks an unused slot."""
    transforms: npt.NDArray[np.float32]
    """[slots, 8], see `payload.data.augmentation`; [0, 8] where nothing is augmented."""
    batch_size: int
    """Images of the step over all ranks."""


def is_augmented(settings: Settings) -> bool:
    """Tell whether training images are moved at all."""
    return bool(settings.rotation_deg or settings.shift_fraction or settings.zoom_fraction)


def epoch_inputs(
    settings: Settings, data: Dataset, *, global_batch: int, epoch: int, rank: int, ranks: int
) -> list[StepInput]:
    """List the inputs of one epoch's steps for one rank: a function of the seed and the epoch, whatever ran before."""
    examples = len(data.train_labels)
    order = epoch_order(examples, seed=settings.seed, epoch=epoch)
    plan = epoch_plan(order, global_batch=global_batch, rank=rank, ranks=ranks)
    transforms: npt.NDArray[Any] = np.zeros((plan.steps, 0, 8), np.float32)
    if is_augmented(settings):
        drawn = affine_transforms(
            examples,
            size=data.image_shape[:2],
            rotation_deg=settings.rotation_deg,
            shift_fraction=settings.shift_fraction,
            zoom_fraction=settings.zoom_fraction,
            seed=settings.seed,
            epoch=epoch,
        )
        transforms = drawn[plan.indices]
    return [
        StepInput(
            indices=plan.indices[step],
            weights=plan.weights[step],
            transforms=transforms[step],
            batch_size=int(plan.batch_sizes[step]),
        )
        for step in range(plan.steps)
    ]
