"""Instance types of today for recipes published on p3.16xlarge (8 V100), whose GPUs the runtime no longer knows.

ResNet-50 in mixed precision waits for memory: from V100 to A100 its published rates rise by 1.83, the bandwidths of
memory by 1.73. So the rate of a GPU without a published one is estimated from that of the A100 by bandwidth.
"""

from __future__ import annotations

import dataclasses
from typing import Final, Literal

NVIDIA_RATES: Final = (
    "https://github.com/NVIDIA/DeepLearningExamples/tree/master/TensorFlow/Classification/ConvNets/resnet50v1.5"
)
"""ResNet-50 v1.5 on ImageNet by TensorFlow with mixed precision and XLA, 256 images a GPU: on 8 V100 16 GB 9,510, on 8
A100 40 GB 17,400 images/s."""
V100_IMAGES_S: Final = 9510
A100_IMAGES_S: Final = 17400
A100_GB_S: Final = 1555
"""Bandwidth of the A100 40 GB's memory, by NVIDIA's data sheet; those below too."""
TRAINING_IMAGES: Final = 1_281_167
"""Of ImageNet's 1,000 classes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurrentType:
    """An instance type that does the work of a recipe today."""

    instance_type: str
    expected_time: str
    evidence: Literal["cited", "estimated", "not measured"]
    """Where the rate of images comes from: the source, or an estimate from it. None was measured here."""
    source: str
    """The publication; for an estimate with how it was made from it; "" without a time."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """A node of 8 GPUs."""

    instance_type: str
    gpu: str
    memory_gb_s: int

    @property
    def images_s(self) -> float:
        """Images per second of ResNet-50 at 224 pixels on the node."""
        return A100_IMAGES_S * self.memory_gb_s / A100_GB_S


NODES: Final = (
    Node(instance_type="p4d.24xlarge", gpu="A100", memory_gb_s=A100_GB_S),
    Node(instance_type="p5.48xlarge", gpu="H100", memory_gb_s=3350),
    Node(instance_type="g6e.48xlarge", gpu="L40S", memory_gb_s=864),
)


def resnet50_epochs(epochs: int) -> tuple[CurrentType, ...]:
    """Return what one node of each type takes for epochs of ImageNet at 224 pixels: the steps alone, at that rate."""
    return tuple(_current(node, f"steps of {epochs} epochs in {_hours(node, epochs)} on one node") for node in NODES)


def resnet50_times() -> tuple[CurrentType, ...]:
    """Return by which factor each type in place of p3.16xlarge changes a published time."""
    factors = [V100_IMAGES_S / node.images_s for node in NODES]
    return tuple(_current(node, f"{factor:.2f} of these times") for node, factor in zip(NODES, factors, strict=True))


def one_gpu(*instance_types: str) -> tuple[CurrentType, ...]:
    """Return types of one GPU for a recipe of one, about whose time nothing is known."""
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
