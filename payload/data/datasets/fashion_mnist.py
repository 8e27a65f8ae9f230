"""Load Fashion-MNIST (Xiao 2017), or another data set in the four files of MNIST."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from payload.data.datasets.arrays import ArraySplit
from payload.data.datasets.idx import IdxError, read_idx_pair

CLASSES: Final = 10


def load_fashion_mnist(directory: Path, name: str = "Fashion-MNIST") -> tuple[ArraySplit, ArraySplit]:
    """Read training and test images from the directory with the four IDX files.

    `name`: name of the data set in error messages. Raises IdxError if a file is missing, damaged or has an unexpected
    shape.
    """
    if not directory.is_dir():
        raise IdxError(directory, "no such directory", "set --data-dir to the directory of the IDX files")
    train_images, train_labels = read_idx_pair(directory, "train", classes=CLASSES)
    test_images, test_labels = read_idx_pair(directory, "t10k", classes=CLASSES)
    return (
        ArraySplit(name=f"training images of {name}", images=train_images, labels=train_labels, classes=CLASSES),
        ArraySplit(name=f"test images of {name}", images=test_images, labels=test_labels, classes=CLASSES),
    )
