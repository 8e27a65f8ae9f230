"""Random changes of training images."""

from __future__ import annotations

import dataclasses

from payload.settings.rules import setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class AugmentationSettings:
    """Choose the random changes; they follow from seed, epoch and image."""

    rotation_deg: float = setting(0.0, "largest rotation either way, degrees", low=0, high=180)
    shift_fraction: float = setting(0.0, "largest shift either way, fraction of width and height", low=0, high=1)
    zoom_fraction: float = setting(0.0, "largest enlargement or reduction, fraction of the size", low=0, high=0.9)
    flip: bool = setting(False, "mirror every other image, left to right")
    smallest_crop: float = setting(
        0.0, "least fraction of an image's area that a random crop keeps; 0: no random crops", low=0, high=1
    )
    augmented_epochs: int = setting(
        -1,
        "epochs with changed images, after the --epochs without; -1: all epochs",
        low=-1,
        high=100_000,
    )
