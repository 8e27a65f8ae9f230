"""What each network has to compute, from which threads and Horovod's cycle are chosen. Standard library only."""

from __future__ import annotations

import dataclasses
from typing import Final

from payload.models.registry import network


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """What one network computes for one image of its published size."""

    multiply_adds: int
    """Of the forward pass, in convolutions, dense and recurrent layers; a training step takes three times as many."""
    branches: int
    """Most parallel layers between a branching and its join: what could run at a time."""


WORK: Final = {
    "alexnet": Work(multiply_adds=838_788_800, branches=1),
    "fashion-vgg": Work(multiply_adds=389_858_816, branches=1),
    "googlenet": Work(multiply_adds=1_582_671_872, branches=4),
    "inception-bn": Work(multiply_adds=2_032_600_064, branches=4),
    "inception-v3": Work(multiply_adds=5_713_216_096, branches=6),
    "lenet": Work(multiply_adds=2_293_000, branches=1),
    "lstm": Work(multiply_adds=1_129_600, branches=2),
    "resnet20": Work(multiply_adds=40_551_040, branches=2),
    "resnet50": Work(multiply_adds=4_089_184_256, branches=2),
    "resnet152": Work(multiply_adds=11_513_626_624, branches=2),
    "vgg16": Work(multiply_adds=15_470_264_320, branches=1),
}
"""By name of the network; a test adds up the layers."""


def work(name: str, image_size: int) -> Work:
    """Return a network's work for images of a size, pixels a side: it grows with their area, all but the dense layers'.

    A network that is not listed counts as a chain like ResNet-50. Raises UnknownNetworkError.
    """
    known = network(name)
    listed = WORK.get(name, Work(multiply_adds=WORK["resnet50"].multiply_adds, branches=1))
    area = (image_size / known.image_size) ** 2 if image_size else 1.0
    return dataclasses.replace(listed, multiply_adds=max(1, round(listed.multiply_adds * area)))
