"""How training images are changed before the network sees them."""

from __future__ import annotations

import dataclasses

from payload.settings.rules import setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class AugmentationSettings:
    """Choose the random changes; each is drawn for each image and epoch from the seed."""

    rotation_deg: float = setting(0.0, "largest rotation either way, degrees", low=0, high=180)
    shift_fraction: float = setting(0.0, "largest shift either way, part of width and height", low=0, high=1)
    zoom_fraction: float = setting(0.0, "largest enlargement or reduction, part of the size", low=0, high=0.9)
    flip: bool = setting(False, "mirror every other image, left to right")
    smallest_crop: float = setting(
        0.0, "least part of an image's area that a random crop keeps; 0: no random crops", low=0, high=1
    )
    augmented_epochs: int = setting(
        -1,
        "epochs with changed images, after those of --epochs without; -1: every epoch has them",
        low=-1,
        high=100_000,
    )
