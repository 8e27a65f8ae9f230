"""Fashion-MNIST (Xiao et al. 2017): 60,000 and 10,000 pictures of clothes, 28 x 28, in four IDX files of MNIST's names.

MNIST itself comes in the same four files and loads as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from payload.data.datasets.arrays import ArraySplit
from payload.data.datasets.idx import IdxError, find_idx, read_idx

CLASSES: Final = 10
_PARTS: Final = {"train": "train", "test": "t10k"}


def load_fashion_mnist(directory: Path, name: str = "Fashion-MNIST") -> tuple[ArraySplit, ArraySplit]:
    """Read training and test images from the directory of the four files; each may be compressed with gzip.

    `name`: what errors call them. Raises IdxError for a file that is missing, damaged, or of another shape than images
    and labels have.
    """
    if not directory.is_dir():
        raise IdxError(directory, "no such directory; give the one that holds the IDX files as --data-dir")
    train_images, train_labels = _part(directory, _PARTS["train"])
    test_images, test_labels = _part(directory, _PARTS["test"])
    return (
        ArraySplit(name=f"training images of {name}", images=train_images, labels=train_labels, classes=CLASSES),
        ArraySplit(name=f"test images of {name}", images=test_images, labels=test_labels, classes=CLASSES),
    )


def _part(directory: Path, prefix: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    images = _read(find_idx(directory, f"{prefix}-images-idx3-ubyte"), dimensions=3)
    label_file = find_idx(directory, f"{prefix}-labels-idx1-ubyte")
    labels = _read(label_file, dimensions=1)
    if len(images) != len(labels):
        raise IdxError(label_file, f"{len(labels)} labels, but {len(images)} images in the file beside it")
    if len(labels) and labels.max() >= CLASSES:
        raise IdxError(label_file, f"label {labels.max()}; must be 0 to {CLASSES - 1}")
    return images[..., np.newaxis], labels.astype(np.int32)


def _read(path: Path, *, dimensions: int) -> npt.NDArray[Any]:
    values = read_idx(path)
    if values.ndim != dimensions or values.dtype != np.uint8:
        raise IdxError(path, f"holds {values.dtype} of shape {values.shape}; expected bytes in {dimensions} dimensions")
    return values
