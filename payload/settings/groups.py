"""The settings of a run by group: type, default, unit and bounds. Standard library only."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Final

from agent.staging.errors import DatasetError
from agent.staging.s3_objects import Prefix
from payload.settings.rules import SettingError, setting

NETWORKS: Final = (
    *("alexnet", "fashion-vgg", "googlenet", "inception-bn", "inception-v3", "lenet", "lstm"),
    *("resnet20", "resnet50", "resnet152", "vgg16"),
)
"""Names of the networks. `payload.models.registry` describes them."""
DATASETS: Final = ("digits", "japanese-vowels", "mnist", "fashion-mnist", "cifar10", "imagenet", "synthetic")
DATASETS_OF_FILES: Final = ("mnist", "fashion-mnist", "cifar10", "imagenet")
"""Data sets with files that the user provides with --data-dir."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Choose network and data."""

    network: str = setting("lenet", "network", choices=NETWORKS)
    dataset: str = setting("digits", "data set", choices=DATASETS)
    validation_fraction: float = setting(
        0.0,
        "fraction of the training images held back for validation after each epoch; 0: the test images",
        low=0,
        high=0.9,
    )
    train_limit: int = setting(0, "training images used, the first of the set's order; 0: all", low=0, high=1 << 40)
    image_size: int = setting(0, "side of the training images, pixels; 0: the data's own", low=0, high=1 << 13)
    test_size: int = setting(0, "side of the test images, pixels; 0: that of the training images", low=0, high=1 << 13)
    rectangular_validation: bool = setting(False, "keep the shape of test images instead of cropping them square")
    classes: int = setting(0, "classes of synthetic images; 0: as the network was published", low=0, high=1 << 20)
    cache: str = setting(
        "auto",
        "keep test images of record files in memory: always, never, or where they fit into a quarter of it",
        choices=("auto", "test", "none"),
    )
    corrupt: str = setting(
        "error", "what to do with a damaged record: end with an error, or skip and count it", choices=("error", "skip")
    )
    local_dir: str = setting("", "directory on each node's own disk for data from s3://; default: data in the home")
    decode_threads: int = setting(0, "images decoded at a time; 0: a rank's share of the cores", low=0, high=1024)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """Choose epochs, batches and learning rates."""

    epochs: int = setting(10, "passes over the training images", low=1, high=100_000)
    batch_per_rank: int = setting(32, "images a rank and step", low=1, high=1 << 20)
    global_batch: int = setting(
        0, "images a step over all ranks, in place of batch_per_rank; 0: from batch_per_rank", low=0, high=1 << 24
    )
    global_batch_limit: int = setting(
        1 << 24, "images a step over all ranks at most, unless a batch is given", low=1, high=1 << 24
    )
    base_batch: int = setting(
        0, "global batch to which the rate applies; it grows linearly with the batch; 0: constant", low=0, high=1 << 24
    )
    learning_rate: float = setting(0.1, "learning rate at base_batch, after the warm-up", low=1e-12, high=1e6)
    warmup_epochs: float = setting(0.0, "epochs in which the rate rises linearly", low=0, high=100_000)
    warmup_rate: float = setting(0.0, "rate at which the warm-up begins; 0: learning_rate unscaled", low=0, high=1e6)
    decay: str = setting(
        "cosine", "how the rate falls after the warm-up", choices=("cosine", "polynomial", "step", "constant")
    )
    decay_power: float = setting(2.0, "power of the polynomial decay, to zero", low=0.01, high=100)
    decay_epochs: tuple[int, ...] = setting((), "epochs at which the step decay falls, separated by commas")
    decay_factor: float = setting(0.1, "factor of the rate at each of decay_epochs", low=0, high=1)
    seed: int = setting(1, "seed of weights, order and augmentation", low=0, high=(1 << 31) - 1)
    rate_phases: str = setting(
        "",
        "rates in place of all above, in epochs: START-END:RATE or START-END:FIRST..LAST, separated by commas",
    )
    image_phases: str = setting(
        "",
        "images from an epoch on: START:SIZE/GLOBAL_BATCH[/SMALLEST_CROP][/rectangular], separated by commas",
    )


OPTIMIZERS: Final = ("sgd", "rmsprop", "adam", "adamw", "lars", "larc", "lamb")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizationSettings:
    """Choose the optimizer and what goes with it."""

    optimizer: str = setting("sgd", "optimizer", choices=OPTIMIZERS)
    momentum: float = setting(0.9, "momentum; first decay rate of Adam and its variants", low=0, high=1)
    beta2: float = setting(0.999, "second decay rate of Adam and its variants; decay rate of RMSprop", low=0, high=1)
    weight_decay: float = setting(
        0.0,
        "weight decay: of the gradient (sgd, lars, larc, rmsprop, adam), of the weights (adamw, lamb)",
        low=0,
        high=1,
    )
    decay_all: bool = setting(False, "decay batch normalisation and biases too")
    trust_coefficient: float = setting(0.001, "of LARS and LARC: eta", low=0, high=1)
    label_smoothing: float = setting(0.0, "fraction of the truth spread over all classes", low=0, high=0.9)
    ema_decay: float = setting(
        0.0, "decay of the moving average of the weights, which is evaluated; 0: none", low=0, high=0.999999
    )
    accumulation_steps: int = setting(1, "parts into which a rank divides its batch, to save memory", low=1, high=4096)
    clip_norm: float = setting(0.0, "largest norm of all gradients together; 0: not clipped", low=0, high=1e9)
    zero_gamma: bool = setting(True, "start residual blocks as the identity, where the network has them")
    batch_norm: str = setting(
        "local", "normalise over a rank's own images or over those of all ranks", choices=("local", "synchronised")
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AugmentationSettings:
    """Choose the random changes; they follow from seed, epoch and image."""

    rotation_deg: float = setting(0.0, "largest rotation either way, degrees", low=0, high=180)
    shift_fraction: float = setting(0.0, "largest shift either way, fraction of width and height", low=0, high=1)
    zoom_fraction: float = setting(0.0, "largest enlargement or reduction, fraction of the size", low=0, high=0.9)
    flip: bool = setting(False, "mirror each image with a probability of 1/2, left to right")
    smallest_crop: float = setting(
        0.0, "least fraction of an image's area that a random crop keeps; 0: no random crops", low=0, high=1
    )
    augmented_epochs: int = setting(
        -1,
        "epochs with changed images, after the --epochs without; -1: all epochs",
        low=-1,
        high=100_000,
    )


FLOAT32: Final = "float32"
NUMBER_FORMATS: Final = (FLOAT32, "bfloat16", "float16")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrecisionSettings:
    """Choose number formats."""

    precision: str = setting(FLOAT32, "number format of the layers; weights stay float32", choices=NUMBER_FORMATS)
    loss_scale: float = setting(
        0.0, "factor of the loss in float16; 0: as large as gradients allow", low=0, high=1 << 24
    )
    compression: str = setting("none", "number format of gradients between ranks", choices=("none", "fp16"))
    xla: bool = setting(False, "compile forward and backward pass by XLA; the allreduce stays outside")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputSettings:
    """Choose checkpoints, records and exports."""

    checkpoint_epochs: int = setting(
        1, "epochs between checkpoints; the last always ends with one", low=1, high=100_000
    )
    checkpoint_minutes: float = setting(
        5.0,
        "minutes of training that a fault may cost, by checkpoints within an epoch; 0: none there",
        low=0,
        high=100_000,
    )
    checkpoint_cost_percent: float = setting(
        2.0, "% of the time that checkpoints within an epoch may take; else they are rarer; 0: no limit", low=0, high=50
    )
    keep_checkpoints: int = setting(
        3, "newest checkpoints after epochs kept; more than one, in case the newest is damaged", low=1, high=1000
    )
    keep_best: bool = setting(False, "also keep the checkpoint of the best accuracy")
    checkpoint_dir: str = setting(
        "", "directory or s3://BUCKET/PREFIX for the checkpoints; default: the run's directory"
    )
    histogram_epochs: int = setting(
        0, "epochs between histograms of the weights for TensorBoard; 0: none", low=0, high=100_000
    )
    pictures: bool = setting(False, "show images, first filters and, at the end, embeddings in TensorBoard")
    profile_steps: str = setting("", "steps FIRST-LAST, counted from 1, to profile for TensorBoard")
    confusion_matrix: bool = setting(False, "write confusion.json and mistakes.json at the end")
    export: bool = setting(False, "write the network as model.keras and SavedModel at the end")
    export_onnx: bool = setting(False, "the same and model.onnx, checked by ONNX Runtime against Keras's answers")


FLAG: Final = "--checkpoint-dir"


def parse_checkpoint_dir(text: str) -> Path | Prefix | None:
    """Parse a directory or s3://BUCKET/PREFIX; return None for "". Raises SettingError."""
    if not text.startswith("s3:"):
        return Path(text) if text else None
    try:
        prefix = Prefix.parse(text)
    except DatasetError as error:
        raise SettingError(FLAG, None, str(error)) from None
    if not prefix.key:
        rule = "name a prefix of the run's own below the bucket, as s3://BUCKET/runs/ID/checkpoints"
        raise SettingError(FLAG, text, rule)
    return prefix


_SPAN: Final = re.compile(r"([0-9]{1,12})(?:-([0-9]{1,12}))?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepSpan:
    """A range of training steps, counted from 1 at the start of the run. Both ends are included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> StepSpan | None:
        """Parse FIRST-LAST or a single number; return None for "". Raises SettingError."""
        if not text:
            return None
        found = _SPAN.fullmatch(text)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 1 <= first <= last:
            rule = "must be FIRST-LAST, steps counted from 1, as 20-25"
            raise SettingError("--profile-steps", text, rule)
        return cls(first=first, last=last)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MachineSettings:
    """Choose threads and placement; defaults follow from the topology (`agent.hardware.topology`)."""

    intra_op_threads: int = setting(0, "threads within one operation; 0: the rank's physical cores", low=0, high=1024)
    inter_op_threads: int = setting(
        0, "operations at a time; 0: by the network's branches and the cores", low=0, high=1024
    )
    placement: str = setting("auto", "bind each rank to its cores and memory, or to none", choices=("auto", "none"))
