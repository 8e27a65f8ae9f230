"""How fast.ai and DIUx trained ResNet-50 to 93% top-5 in 2018 (`imagenet18`), on 1, 4, 8 and 16 nodes of 8 GPUs.

Small images and large batches first, larger images and smaller rates later. Rates are functions of the epoch, with its
fraction, so they hold for any number of steps. Standard library only.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Final

IMAGENET_TRAIN_IMAGES: Final = 1_281_167
MOMENTUM: Final = 0.9
WEIGHT_DECAY: Final = 1e-4
"""On all but batch normalisation."""
LOSS_SCALE: Final = 1024
"""By which the loss is multiplied before gradients are taken in float16."""


class UnknownNodesError(LookupError):
    """Report a number of nodes for which nothing was published. Carries `nodes`."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        known = ", ".join(str(schedule.nodes) for schedule in SCHEDULES)
        super().__init__(f"no schedule was published for {nodes} nodes; published: {known}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RatePhase:
    """Let the learning rate run in a line from one epoch to another."""

    start: int
    end: int
    first: float
    """Rate at `start`."""
    last: float
    """Rate at `end`, where the next phase may begin with another."""

    def rate(self, epoch: float) -> float:
        """Return the rate at an epoch within the phase."""
        return self.first + (self.last - self.first) * (epoch - self.start) / (self.end - self.start)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImagePhase:
    """Say what the images and batches are from one epoch on."""

    start: int
    size: int
    """Side of the training images, pixels."""
    batch_per_gpu: int
    smallest_crop: float
    """Least part of an image's area that a random crop keeps."""
    rectangular_validation: bool = False
    """Whether test images keep their shape instead of being cropped square."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FastSchedule:
    """Hold one published run: its phases and its outcome."""

    nodes: int
    gpus_per_node: int = 8
    rates: tuple[RatePhase, ...]
    images: tuple[ImagePhase, ...]
    top5_accuracy: float
    """Of the published run."""
    seconds: int
    """Of the published run, to that accuracy."""

    def __post_init__(self) -> None:
        """Raise ValueError where phases leave a gap or overlap."""
        edges = [0, *(phase.end for phase in self.rates)]
        if [phase.start for phase in self.rates] != edges[:-1] or not self.rates:
            raise ValueError(f"rates of {self.nodes} nodes: each phase must start where the one before ends, from 0")
        starts = [phase.start for phase in self.images]
        if starts[:1] != [0] or any(a >= b for a, b in itertools.pairwise([*starts, self.epochs])):
            raise ValueError(f"images of {self.nodes} nodes: phases must start at 0 and rise, before {self.epochs}")

    @property
    def epochs(self) -> int:
        """Return the length of the run."""
        return self.rates[-1].end

    @property
    def gpus(self) -> int:
        """Return the ranks for which the schedule was published."""
        return self.nodes * self.gpus_per_node

    def rate(self, epoch: float) -> float:
        """Return the learning rate at an epoch from 0 to `epochs`, a fraction of one included.

        Where one phase ends and another starts, the one that starts counts. Raises ValueError outside the run.
        """
        if not 0 <= epoch <= self.epochs:
            raise ValueError(f"epoch {epoch:g}: the run has epochs 0 to {self.epochs}")
        for phase in self.rates:
            if epoch < phase.end:
                return phase.rate(epoch)
        return self.rates[-1].last

    def image_phase(self, epoch: float) -> ImagePhase:
        """Return size and batch at an epoch from 0 to `epochs`. Raises ValueError outside the run."""
        if not 0 <= epoch <= self.epochs:
            raise ValueError(f"epoch {epoch:g}: the run has epochs 0 to {self.epochs}")
        return [phase for phase in self.images if phase.start <= epoch][-1]

    def global_batch(self, epoch: float) -> int:
        """Return the images a step over all GPUs."""
        return self.image_phase(epoch).batch_per_gpu * self.gpus

    def steps(self, epoch: int, train_images: int = IMAGENET_TRAIN_IMAGES) -> int:
        """Return the steps of one epoch, a last partial batch included."""
        return math.ceil(train_images / self.global_batch(epoch))


def schedule_for_nodes(nodes: int) -> FastSchedule:
    """Return the schedule published for so many nodes of 8 GPUs. Raises UnknownNodesError."""
    for schedule in SCHEDULES:
        if schedule.nodes == nodes:
            return schedule
    raise UnknownNodesError(nodes)


def _line(start: int, end: int, first: float, last: float | None = None) -> RatePhase:
    """Return a phase; without `last` the rate stays."""
    return RatePhase(start=start, end=end, first=first, last=first if last is None else last)


def _images(start: int, size: int, batch_per_gpu: int) -> ImagePhase:
    """Return a phase with the crops published for its size: at 288 the network is fitted to large, whole objects."""
    crop = {128: 0.08, 224: 0.087, 288: 0.5}[size]
    return ImagePhase(
        start=start, size=size, batch_per_gpu=batch_per_gpu, smallest_crop=crop, rectangular_validation=size == 288
    )


def _one_node() -> FastSchedule:
    lr, at224, at288 = 1.0, 224 / 512, 128 / 512  # rates follow the batch that fits into memory at each size
    return FastSchedule(
        nodes=1,
        rates=(
            _line(0, 7, lr, 2 * lr),
            _line(7, 13, 2 * lr, lr / 4),
            _line(13, 22, lr * at224, lr / 10 * at224),
            _line(22, 25, lr / 10 * at224, lr / 100 * at224),
            _line(25, 28, lr / 100 * at288, lr / 1000 * at288),
        ),
        images=(_images(0, 128, 512), _images(13, 224, 224), _images(25, 288, 128)),
        top5_accuracy=0.9300,
        seconds=109 * 60 + 12,
    )


def _four_nodes() -> FastSchedule:
    lr, at224, at288 = 2.0, 224 / 256, 128 / 256
    return FastSchedule(
        nodes=4,
        rates=(
            _line(0, 6, lr, 2 * lr),
            _line(6, 11, 2 * lr),
            _line(11, 13, 2 * lr, lr),
            _line(13, 16, lr * at224),
            _line(16, 24, lr * at224, lr / 10 * at224),
            _line(24, 28, lr / 10 * at224, lr / 100 * at224),
            _line(28, 30, lr / 100 * at288, lr / 1000 * at288),
        ),
        images=(_images(0, 128, 256), _images(6, 128, 512), _images(13, 224, 224), _images(28, 288, 128)),
        top5_accuracy=0.9305,
        seconds=29 * 60 + 44,
    )


def _eight_nodes() -> FastSchedule:
    lr = 1.92
    return FastSchedule(
        nodes=8,
        rates=(
            _line(0, 6, lr, 2 * lr),
            _line(6, 11, 2 * lr),
            _line(11, 14, 2 * lr, lr),
            _line(14, 17, lr),
            _line(17, 23, lr, 0.175 * lr),
            _line(23, 29, 0.175 * lr, 0.0175 * lr),
            _line(29, 36, lr / 100, lr / 1000),
        ),
        images=(
            _images(0, 128, 128),
            _images(6, 128, 256),
            _images(14, 224, 128),
            _images(17, 224, 224),
            _images(29, 288, 128),
        ),
        top5_accuracy=0.930,
        seconds=19 * 60 + 4,
    )


def _sixteen_nodes() -> FastSchedule:
    lr = 1.88
    return FastSchedule(
        nodes=16,
        rates=(
            _line(0, 6, lr, 2 * lr),
            _line(6, 16, 2 * lr),
            _line(16, 19, lr),
            _line(19, 31, 0.3 * lr),
            _line(31, 37, 0.03 * lr),
            _line(37, 38, 0.02 * lr),
            _line(38, 50, 0.002 * lr),
        ),
        images=(
            _images(0, 128, 64),
            _images(6, 128, 128),
            _images(16, 224, 64),
            _images(19, 224, 192),
            _images(37, 288, 128),
        ),
        top5_accuracy=0.9304,
        seconds=16 * 60 + 8,
    )


SCHEDULES: Final = (_one_node(), _four_nodes(), _eight_nodes(), _sixteen_nodes())
"""Every published run, by number of nodes."""
