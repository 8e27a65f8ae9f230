"""The settings of a run by group: type, default, unit and bounds. Standard library only."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.staging.errors import DatasetError
from payload.settings.validation import SettingError, setting

if TYPE_CHECKING:
    from agent.staging.s3_objects import Prefix

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
        "fraction of the training images to use for validation instead of training; 0: use the test images",
        low=0,
        high=0.9,
    )
    train_limit: int = setting(
        0, "number of training images to use, from the start of the data set; 0: all", low=0, high=1 << 40
    )
    image_size: int = setting(0, "size of the training images, pixels; 0: as in the data", low=0, high=1 << 13)
    test_size: int = setting(0, "size of the test images, pixels; 0: as the training images", low=0, high=1 << 13)
    rectangular_validation: bool = setting(
        False, "keep the aspect ratio of test images instead of cropping them to squares"
    )
    classes: int = setting(
        0,
        "number of classes of synthetic images or record files; 0: as in the network's publication or the labels",
        low=0,
        high=1 << 20,
    )
    cache: str = setting(
        "auto",
        "cache test images of record files in memory: always (test), never, or if they fit into a quarter of it (auto)",
        choices=("auto", "test", "none"),
    )
    corrupt: str = setting(
        "error", "how to handle a damaged record: stop with an error, or skip and count it", choices=("error", "skip")
    )
    local_dir: str = setting("", "directory on each node's disk for data from s3://; default: ~/data")
    decode_threads: int = setting(
        0, "number of images to decode concurrently; 0: the rank's share of the cores", low=0, high=1024
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """Choose epochs, batches and learning rates."""

    epochs: int = setting(10, "passes over the training images", low=1, high=100_000)
    batch_per_rank: int = setting(32, "images per rank and step", low=1, high=1 << 20)
    global_batch: int = setting(
        0, "images per step over all ranks, instead of batch_per_rank; 0: from batch_per_rank", low=0, high=1 << 24
    )
    global_batch_limit: int = setting(
        1 << 24, "maximum images per step over all ranks, unless a batch size is set", low=1, high=1 << 24
    )
    base_batch: int = setting(
        0,
        "global batch for which the learning rate is set; the rate is scaled linearly with the batch; 0: no scaling",
        low=0,
        high=1 << 24,
    )
    learning_rate: float = setting(0.1, "learning rate at base_batch, after the warm-up", low=1e-12, high=1e6)
    warmup_epochs: float = setting(0.0, "epochs of linear warm-up of the learning rate", low=0, high=100_000)
    warmup_rate: float = setting(
        0.0, "learning rate at the start of the warm-up; 0: learning_rate without scaling", low=0, high=1e6
    )
    decay: str = setting(
        "cosine", "decay of the learning rate after the warm-up", choices=("cosine", "polynomial", "step", "constant")
    )
    decay_power: float = setting(2.0, "power of the polynomial decay to zero", low=0.01, high=100)
    decay_epochs: tuple[int, ...] = setting((), "epochs of the steps of the step decay, separated by commas")
    decay_factor: float = setting(0.1, "factor of the learning rate at each step of the step decay", low=0, high=1)
    seed: int = setting(1, "random seed of weights, order and augmentation", low=0, high=(1 << 31) - 1)
    rate_phases: str = setting(
        "",
        "learning rates, replacing the settings above: START-END:RATE or START-END:FIRST..LAST, separated by commas",
    )
    image_phases: str = setting(
        "",
        "image size and batch from an epoch: START:SIZE/GLOBAL_BATCH[/SMALLEST_CROP][/rectangular], "
        "separated by commas",
    )


OPTIMIZERS: Final = ("sgd", "rmsprop", "adam", "adamw", "lars", "larc", "lamb")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizationSettings:
    """Choose the optimizer and what goes with it."""

    optimizer: str = setting("sgd", "optimizer", choices=OPTIMIZERS)
    momentum: float = setting(0.9, "momentum; for Adam and its variants, the first decay rate", low=0, high=1)
    beta2: float = setting(
        0.999, "for Adam and its variants, the second decay rate; for RMSprop, the decay rate", low=0, high=1
    )
    weight_decay: float = setting(
        0.0,
        "weight decay, added to the gradient (sgd, lars, larc, rmsprop, adam) or applied to the weights (adamw, lamb)",
        low=0,
        high=1,
    )
    decay_all: bool = setting(False, "also apply weight decay to batch normalization and biases")
    trust_coefficient: float = setting(0.001, "trust coefficient (eta) of LARS and LARC", low=0, high=1)
    label_smoothing: float = setting(
        0.0, "label smoothing: fraction of the target spread over all classes", low=0, high=0.9
    )
    ema_decay: float = setting(
        0.0, "decay of the moving average of the weights, which is used for evaluation; 0: none", low=0, high=0.999999
    )
    accumulation_steps: int = setting(
        1, "gradient accumulation: number of parts of a rank's batch, to save memory", low=1, high=4096
    )
    clip_norm: float = setting(0.0, "maximum global norm of the gradients; 0: no clipping", low=0, high=1e9)
    zero_gamma: bool = setting(True, "initialize residual blocks as the identity, if the network has any")
    batch_norm: str = setting(
        "local",
        "batch normalization over the images of one rank (local) or of all ranks",
        choices=("local", "synchronized"),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AugmentationSettings:
    """Choose the random changes; they follow from seed, epoch and image."""

    rotation_deg: float = setting(0.0, "maximum random rotation in either direction, degrees", low=0, high=180)
    shift_fraction: float = setting(
        0.0, "maximum random shift in either direction, fraction of width and height", low=0, high=1
    )
    zoom_fraction: float = setting(0.0, "maximum random zoom in or out, fraction of the size", low=0, high=0.9)
    flip: bool = setting(False, "flip each image horizontally with a probability of 1/2")
    smallest_crop: float = setting(
        0.0, "minimum fraction of an image's area in a random crop; 0: no random crops", low=0, high=1
    )
    augmented_epochs: int = setting(
        -1,
        "number of epochs with augmentation, after --epochs without; -1: all epochs",
        low=-1,
        high=100_000,
    )


FLOAT32: Final = "float32"
NUMBER_FORMATS: Final = (FLOAT32, "bfloat16", "float16")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrecisionSettings:
    """Choose number formats."""

    precision: str = setting(FLOAT32, "number format of the layers; weights stay float32", choices=NUMBER_FORMATS)
    loss_scale: float = setting(0.0, "loss scale in float16; 0: dynamic", low=0, high=1 << 24)
    compression: str = setting("none", "number format of gradients between ranks", choices=("none", "fp16"))
    xla: bool = setting(False, "compile the forward and backward pass with XLA, without the allreduce")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputSettings:
    """Choose checkpoints, records and exports."""

    checkpoint_epochs: int = setting(
        1, "epochs between checkpoints; there is always one after the last epoch", low=1, high=100_000
    )
    checkpoint_minutes: float = setting(
        5.0,
        "minutes between checkpoints within an epoch; 0: none within an epoch",
        low=0,
        high=100_000,
    )
    checkpoint_cost_percent: float = setting(
        2.0,
        "maximum percentage of the time for checkpoints within an epoch, which are then written less "
        "often; 0: no limit",
        low=0,
        high=50,
    )
    keep_checkpoints: int = setting(
        3,
        "number of checkpoints after epochs to keep; with 1, damage to this checkpoint loses all training",
        low=1,
        high=1000,
    )
    keep_best: bool = setting(False, "also keep the checkpoint with the best accuracy")
    checkpoint_dir: str = setting(
        "", "directory or s3://BUCKET/PREFIX for the checkpoints; default: the run's directory"
    )
    histogram_epochs: int = setting(0, "epochs between weight histograms for TensorBoard; 0: none", low=0, high=100_000)
    pictures: bool = setting(False, "write images, the first filters and, at the end, embeddings for TensorBoard")
    profile_steps: str = setting("", "steps FIRST-LAST, counted from 1, to profile for TensorBoard")
    confusion_matrix: bool = setting(False, "write confusion.json and mistakes.json at the end")
    export: bool = setting(False, "export the network as model.keras and SavedModel at the end")
    export_onnx: bool = setting(False, "also export model.onnx, and compare its results with Keras in ONNX Runtime")


FLAG: Final = "--checkpoint-dir"


def parse_checkpoint_dir(text: str) -> Path | Prefix | None:
    """Parse a directory or s3://BUCKET/PREFIX; return None for "".

    Raises SettingError for an invalid address, or for a bucket without a prefix.
    """
    if not text.startswith("s3:"):
        return Path(text) if text else None
    from agent.staging.s3_objects import Prefix  # Not at the top: `fab train` starts sooner.

    try:
        prefix = Prefix.parse(text)
    except DatasetError as error:
        raise SettingError(FLAG, None, str(error)) from None
    if not prefix.key:
        rule = "must have a prefix for this run, for example s3://BUCKET/runs/ID/checkpoints"
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
        """Parse FIRST-LAST, or the number of a single step; return None for "". Raises SettingError."""
        if not text:
            return None
        found = _SPAN.fullmatch(text)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 1 <= first <= last:
            rule = "must be FIRST-LAST, with steps counted from 1, for example 20-25"
            raise SettingError("--profile-steps", text, rule)
        return cls(first=first, last=last)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MachineSettings:
    """Choose threads and placement; defaults follow from the topology (`agent.hardware.topology`)."""

    intra_op_threads: int = setting(
        0, "threads per operation; 0: the rank's number of physical cores", low=0, high=1024
    )
    inter_op_threads: int = setting(
        0, "concurrent operations; 0: from the network's branches and the cores", low=0, high=1024
    )
    placement: str = setting("auto", "bind each rank to its cores and memory, or do not bind", choices=("auto", "none"))
