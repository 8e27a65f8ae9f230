"""Fashion-MNIST (Xiao et al. 2017): 60,000 and 10,000 pictures of clothes, 28 x 28, in four IDX files of MNIST's names.

MNIST itself comes in the same four files and loads as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from payload.data.datasets.arrays import ArraySplit
from payload.data.datasets.idx import IdxError, read_idx_pair

CLASSES: Final = 10


def load_fashion_mnist(directory: Path, name: str = "Fashion-MNIST") -> tuple[ArraySplit, ArraySplit]:
    """Read training and test images from the directory of the four files; each may be compressed with gzip.

    `name`: what errors call them. Raises IdxError for a file that is missing, damaged, or of another shape than images
    and labels have.
    """
    if not directory.is_dir():
        raise IdxError(directory, "no such directory; give the one that holds the IDX files as --data-dir")
    train_images, train_labels = read_idx_pair(directory, "train", classes=CLASSES)
    test_images, test_labels = read_idx_pair(directory, "t10k", classes=CLASSES)
    return (
        ArraySplit(name=f"training images of {name}", images=train_images, labels=train_labels, classes=CLASSES),
        ArraySplit(name=f"test images of {name}", images=test_images, labels=test_labels, classes=CLASSES),
    )
