"""Size and work of each network, for estimates without TensorFlow."""

from __future__ import annotations

import dataclasses
from typing import Final


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """One network, for images of the size for which it was published."""

    image_size: int
    """Side of the images, pixels."""
    weights: int
    """Weights to train."""
    multiply_adds: int
    """Multiply-adds of the forward pass for one image."""


NETWORKS: Final = {
    "alexnet": Network(image_size=224, weights=61_838_248, multiply_adds=838_788_800),
    "fashion-vgg": Network(image_size=28, weights=8_454_954, multiply_adds=389_858_816),
    "googlenet": Network(image_size=224, weights=6_998_552, multiply_adds=1_582_671_872),
    "inception-bn": Network(image_size=224, weights=11_295_240, multiply_adds=2_032_600_064),
    "inception-v3": Network(image_size=299, weights=23_834_568, multiply_adds=5_713_216_096),
    "lenet": Network(image_size=28, weights=431_080, multiply_adds=2_293_000),
    "lstm": Network(image_size=29, weights=40_585, multiply_adds=1_129_600),
    "resnet20": Network(image_size=32, weights=269_722, multiply_adds=40_551_040),
    "resnet50": Network(image_size=224, weights=25_557_032, multiply_adds=4_089_184_256),
    "resnet152": Network(image_size=224, weights=60_192_808, multiply_adds=11_513_626_624),
    "vgg16": Network(image_size=224, weights=138_357_544, multiply_adds=15_470_264_320),
}
