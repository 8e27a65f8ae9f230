"""Load the handwritten digits of scikit-learn: 1,797 images of 8 x 8 pixels (UCI, Alpaydin and Kaynak 1998).

The file is read directly. Importing scikit-learn would take each rank more than a second.
"""

from __future__ import annotations

import gzip
import importlib.util
import zlib
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from payload.data.dataset import DataError
from payload.data.datasets.arrays import ArraySplit
from payload.data.datasets.selection import stratified

CLASSES: Final = 10
SOURCE_SIZE: Final = 8
SIZE: Final = 28
"""Side of an enlarged image in pixels. It is MNIST's, so the published LeNet (431,080 weights) can be used."""
SOURCE_MAX: Final = 16
"""Largest pixel value in the file."""
TEST_FRACTION: Final = 0.2


def load_digits() -> tuple[ArraySplit, ArraySplit]:
    """Load 80% of the digits for training and 20% for testing, enlarged to 28 x 28 pixels.

    Each digit has the same proportion in both splits. Raises DataError if scikit-learn or its file is missing or
    damaged.
    """
    images, labels = _read(_digits_file())
    train, test = stratified(labels, TEST_FRACTION)
    pixels = enlarge(images, SIZE)
    return (
        ArraySplit(name="training images of digits", images=pixels[train], labels=labels[train], classes=CLASSES),
        ArraySplit(name="test images of digits", images=pixels[test], labels=labels[test], classes=CLASSES),
    )


def enlarge(images: npt.NDArray[np.float32], size: int) -> npt.NDArray[np.uint8]:
    """Enlarge images [N, 8, 8], values 0 to 16, by bilinear interpolation to [N, size, size, 1], bytes 0 to 255."""
    source = images.shape[1]
    positions = np.clip((np.arange(size) + 0.5) * source / size - 0.5, 0, source - 1)
    low = np.floor(positions).astype(np.int64)
    high = np.minimum(low + 1, source - 1)
    matrix = np.zeros((size, source), np.float32)
    np.add.at(matrix, (np.arange(size), low), 1 - (positions - low))
    np.add.at(matrix, (np.arange(size), high), positions - low)
    enlarged = matrix @ images @ matrix.T
    return np.rint(enlarged * (255 / SOURCE_MAX)).astype(np.uint8)[..., np.newaxis]


def _digits_file() -> Path:
    spec = importlib.util.find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            "scikit-learn, which contains the digits, is not installed in this Python; install scikit-learn"
        )
    return Path(spec.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"


def _read(path: Path) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    try:
        with gzip.open(path, "rt", encoding="ascii") as file:
            table = np.loadtxt(file, delimiter=",", dtype=np.float32, ndmin=2)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; reinstall scikit-learn, which contains the file") from None
    except (OSError, EOFError, zlib.error, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"{path}: is not a valid copy of the digits data set: {reason}; reinstall scikit-learn"
        ) from error
    if table.shape[1] != SOURCE_SIZE * SOURCE_SIZE + 1:
        raise DataError(
            f"{path}: a row has {table.shape[1]} columns, but must have {SOURCE_SIZE**2 + 1}; reinstall scikit-learn"
        )
    return table[:, :-1].reshape(-1, SOURCE_SIZE, SOURCE_SIZE), table[:, -1].astype(np.int32)
