"""The workload of a run: images, phases, size of the gradients, and how its program works."""

from __future__ import annotations

import dataclasses
from typing import Final

from cluster.errors import UsageError
from cluster.planner.figure import ESTIMATED, Figure, within
from cluster.report.shown_values import plural
from payload.settings import Settings
from payload.settings.image_phases import parse_phases


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """One network, for images of its published size."""

    image_size: int
    """Side of the images, pixels."""
    weights: int
    """Number of trainable weights."""
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
"""Size and work of each network, for estimates without TensorFlow."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """Epochs with the same image size and batch."""

    epochs: int
    size: int
    """Side of the training images, pixels."""
    global_batch: int
    evaluation_batch: int = 0
    """Images that a rank evaluates at a time; 0: as many as it trains on."""
    stored_side: int = 0
    """Shorter side of the stored images, pixels; 0: ImageNet's average."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """How a training program reads, computes and reduces."""

    name: str
    decode_images_s: Figure
    """ImageNet images that one vCPU decodes, crops and resizes per second."""
    fusion_bytes: int = 128 << 20
    """Size of the buffer in which gradients are sent together."""
    cycle_s: float = 0.0
    """Time between two exchanges of gradients. The average wait is half of it."""
    batch_by_one_worker: bool = False
    """Whether one worker prepares a whole batch. Each epoch then starts with the preparation time of the
    first batch.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """The work of one run."""

    network: str
    precision: str
    gradient_bytes: int
    """Size of all gradients in the format in which they are sent."""
    training_images: int
    evaluated_images: int
    """Images evaluated after each epoch."""
    phases: tuple[Phase, ...]
    jpeg: bool
    """Whether images are decoded from JPEG. If not, they are in memory or computed."""
    program: Program

    @property
    def epochs(self) -> int:
        """Return the number of epochs of the run."""
        return sum(phase.epochs for phase in self.phases)

    def until(self, epochs: int) -> Workload:
        """Return the workload of only the first `epochs` epochs; all of it for 0."""
        left, phases = epochs or self.epochs, []
        for phase in self.phases:
            if left > 0:
                phases.append(dataclasses.replace(phase, epochs=min(left, phase.epochs)))
            left -= phase.epochs
        return dataclasses.replace(self, phases=tuple(phases))


IMAGES: Final = {
    "digits": (1438, 359),
    "japanese-vowels": (270, 370),
    "mnist": (60_000, 10_000),
    "fashion-mnist": (60_000, 10_000),
    "cifar10": (50_000, 10_000),
    "imagenet": (1_281_167, 50_000),
    "synthetic": (1_281_167, 50_000),
}
"""Training and test images of each data set."""
SIDES: Final = {"digits": 28, "japanese-vowels": 29, "mnist": 28, "fashion-mnist": 28, "cifar10": 32}
"""Side of the images, pixels, for data sets with images of one size."""
DECODED: Final = ("imagenet",)
"""Data sets of JPEG images."""

PAYLOAD: Final = Program(
    name="payload.train",
    decode_images_s=within(
        0.6 * 1943 / 2,
        0.6,
        1.5,
        ESTIMATED,
        "1943 images a second on two cores (docs/data.md); a vCPU, half a core, counts as 0.6 of one",
    ),
    cycle_s=1e-3,  # Horovod's default, which ranks on GPUs keep
)


def workload_of(settings: Settings, ranks: int) -> Workload:
    """Return the workload of these settings on this number of ranks.

    If a step uses more images than the data has, raises UsageError with the flag to change: --nodes, --global-batch or
    --image-phases.
    """
    known = NETWORKS[settings.network]
    training, tested = IMAGES[settings.dataset]
    if settings.train_limit:
        tested = round(tested / training * settings.train_limit) if settings.dataset == "synthetic" else tested
        training = min(training, settings.train_limit)
    held_back = round(training * settings.validation_fraction)
    phases = _phases(settings, ranks, SIDES.get(settings.dataset, known.image_size))
    for phase in phases:
        if phase.global_batch > training - held_back:
            flag, fix = "--nodes", "choose fewer nodes, or a smaller --batch-per-rank"
            if settings.image_phases or settings.global_batch:
                flag = "--image-phases" if settings.image_phases else "--global-batch"
                fix = "choose a smaller batch"
            rule = f"a step on {plural(ranks, 'rank')} uses {phase.global_batch} images, more than the "
            raise UsageError(flag, None, f"{rule}{training - held_back} images of the data; {fix}")
    return Workload(
        network=settings.network,
        precision=settings.precision,
        gradient_bytes=known.weights * (2 if settings.compression == "fp16" else 4),
        training_images=training - held_back,
        evaluated_images=held_back or tested,
        phases=phases,
        jpeg=settings.dataset in DECODED,
        program=PAYLOAD,
    )


def _phases(settings: Settings, ranks: int, side: int) -> tuple[Phase, ...]:
    """Return the phases of a run. `side` is the image size if the settings have none."""
    epochs = settings.total_epochs
    if not settings.image_phases:
        batch = settings.global_batch or min(settings.batch_per_rank * ranks, settings.global_batch_limit)
        return (Phase(epochs=epochs, size=settings.image_size or side, global_batch=batch),)
    parsed = parse_phases(
        settings.image_phases, smallest_crop=settings.smallest_crop, rectangular=settings.rectangular_validation
    )
    ends = [*(phase.start for phase in parsed[1:]), epochs]
    return tuple(
        Phase(epochs=min(end, epochs) - phase.start, size=phase.size, global_batch=phase.global_batch)
        for phase, end in zip(parsed, ends, strict=True)
        if phase.start < epochs
    )
