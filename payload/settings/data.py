"""The network and the data, and how they are read."""

from __future__ import annotations

import dataclasses
from typing import Final

from payload.settings.rules import setting

NETWORKS: Final = (
    *("alexnet", "fashion-vgg", "googlenet", "inception-bn", "inception-v3", "lenet", "lstm"),
    *("resnet20", "resnet50", "resnet152", "vgg16"),
)
"""`payload.models.registry` has what is known of each."""
DATASETS: Final = ("digits", "japanese-vowels", "mnist", "fashion-mnist", "cifar10", "imagenet", "synthetic")
DATASETS_OF_FILES: Final = ("mnist", "fashion-mnist", "cifar10", "imagenet")
"""Those whose files the user provides, by --data-dir."""


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
