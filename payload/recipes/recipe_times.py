"""Current instance types for recipes published on p3.16xlarge (8 V100), whose GPUs the runtime no longer supports.

ResNet-50 in mixed precision is limited by memory bandwidth: from V100 to A100 its published rates rise by a factor of
1.83, and the bandwidth by 1.73. For GPUs without a published rate, the rate is estimated from the A100's by bandwidth.
"""

from __future__ import annotations

import dataclasses
from typing import Final, Literal

NVIDIA_RATES: Final = (
    "https://github.com/NVIDIA/DeepLearningExamples/tree/master/TensorFlow/Classification/ConvNets/resnet50v1.5"
)
"""ResNet-50 v1.5 on ImageNet with TensorFlow, mixed precision, XLA and 256 images per GPU: 9,510 images/s on 8 V100
16 GB, 17,400 images/s on 8 A100 40 GB."""
V100_IMAGES_S: Final = 9510
A100_IMAGES_S: Final = 17400
A100_GB_S: Final = 1555
"""Memory bandwidth of the A100 40 GB. This and the values below are from NVIDIA's data sheets."""
TRAINING_IMAGES: Final = 1_281_167
"""Number of training images in ImageNet (1,000 classes)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurrentType:
    """A current instance type for a recipe."""

    instance_type: str
    expected_time: str
    evidence: Literal["cited", "estimated", "not measured"]
    """Whether the time is from the source or estimated from it. These times were not measured here."""
    source: str
    """The publication, and for an estimate how it was derived. Empty if the time is unknown."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """A node of 8 GPUs."""

    instance_type: str
    gpu: str
    memory_gb_s: int

    @property
    def images_s(self) -> float:
        """Estimate the images per second of ResNet-50 at 224 pixels on all GPUs of the node together."""
        return A100_IMAGES_S * self.memory_gb_s / A100_GB_S


NODES: Final = (
    Node(instance_type="p4d.24xlarge", gpu="A100", memory_gb_s=A100_GB_S),
    Node(instance_type="p5.48xlarge", gpu="H100", memory_gb_s=3350),
    Node(instance_type="g6e.48xlarge", gpu="L40S", memory_gb_s=864),
)


def resnet50_epochs(epochs: int) -> tuple[CurrentType, ...]:
    """Describe current instance types, each with the estimated time to train on ImageNet.

    The time is for `epochs` epochs at 224 pixels on one node.
    """
    return tuple(_current(node, f"steps of {epochs} epochs in {_hours(node, epochs)} on one node") for node in NODES)


def resnet50_times() -> tuple[CurrentType, ...]:
    """Describe current instance types. Their expected times are fractions of those published for p3.16xlarge."""
    factors = [V100_IMAGES_S / node.images_s for node in NODES]
    return tuple(_current(node, f"{factor:.2f} of these times") for node, factor in zip(NODES, factors, strict=True))


def one_gpu(*instance_types: str) -> tuple[CurrentType, ...]:
    """Describe instance types with one GPU, for a recipe on one GPU. Their time is unknown."""
    return tuple(
        CurrentType(instance_type=name, expected_time="time unknown", evidence="not measured", source="")
        for name in instance_types
    )


def _current(node: Node, time: str) -> CurrentType:
    cited = node.memory_gb_s == A100_GB_S
    estimate = f"by the bandwidth of the {node.gpu}'s memory, from the A100's rate in {NVIDIA_RATES}"
    return CurrentType(
        instance_type=node.instance_type,
        expected_time=time,
        evidence="cited" if cited else "estimated",
        source=NVIDIA_RATES if cited else estimate,
    )


def _hours(node: Node, epochs: int) -> str:
    minutes = round(epochs * TRAINING_IMAGES / node.images_s / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"
