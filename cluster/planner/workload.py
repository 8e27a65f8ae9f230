"""What a run computes: images, phases, the network's gradients, and the way in which its program works."""

from __future__ import annotations

import dataclasses

from cluster.planner.evidence import Figure


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """Epochs of one image size and batch."""

    epochs: int
    size: int
    """Side of the training images, pixels."""
    global_batch: int
    evaluation_batch: int = 0
    """Images that a rank evaluates at a time; 0: as many as it trains on."""
    stored_side: int = 0
    """Shorter side of the stored images, pixels; 0: as ImageNet has them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """How a training program reads, computes and reduces."""

    name: str
    decode_images_s: Figure
    """Images as ImageNet stores them that one vCPU decodes, crops and resizes a second."""
    overlaps: bool = False
    """Whether gradients travel while others are computed; False: all in one group after the backward pass."""
    fusion_bytes: int = 128 << 20
    """Buffer in which gradients travel together."""
    cycle_s: float = 0.0
    """Time between two gatherings of gradients; half of it is waited for on average."""
    batch_by_one_worker: bool = False
    """Whether one worker makes a whole batch, so that each epoch begins with the time it needs for the first one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """One run."""

    network: str
    precision: str
    gradient_bytes: int
    """Of all gradients, as they travel."""
    training_images: int
    evaluated_images: int
    """After each epoch."""
    phases: tuple[Phase, ...]
    jpeg: bool
    """Whether images are decoded from JPEG; False: they are in memory, or computed."""
    program: Program

    @property
    def epochs(self) -> int:
        """Return the epochs of the run."""
        return sum(phase.epochs for phase in self.phases)

    def until(self, epochs: int) -> Workload:
        """Return the run as far as an epoch; all of it for 0."""
        left, phases = epochs or self.epochs, []
        for phase in self.phases:
            if left > 0:
                phases.append(dataclasses.replace(phase, epochs=min(left, phase.epochs)))
            left -= phase.epochs
        return dataclasses.replace(self, phases=tuple(phases))
