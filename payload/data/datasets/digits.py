"""Handwritten digits, 8 x 8 pixels, that ship with scikit-learn (1,797 images; UCI, Alpaydin and Kaynak 1998).

The file is read where it lies, without importing scikit-learn, which would cost each rank a second and more.
"""

from __future__ import annotations

import gzip
import importlib.util
import zlib
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from payload.data.datasets.arrays import ArraySplit
from payload.data.datasets.selection import stratified
from payload.data.types import DataError

CLASSES: Final = 10
SOURCE_SIZE: Final = 8
SIZE: Final = 28
"""Pixels a side after enlarging: MNIST's, so that LeNet applies as published, with its 431,080 weights."""
SOURCE_MAX: Final = 16
"""Largest pixel value in the file."""
TEST_FRACTION: Final = 0.2


def load_digits() -> tuple[ArraySplit, ArraySplit]:
    """Load training and test digits as 28 x 28 bytes, 80% and 20%, with each digit in the same proportion in both.

    Raises DataError where scikit-learn or its file is missing or damaged.
    """
    images, labels = _read(_digits_file())
    train, test = stratified(labels, TEST_FRACTION)
    pixels = enlarge(images, SIZE)
    return (
        ArraySplit(name="training images of digits", images=pixels[train], labels=labels[train], classes=CLASSES),
        ArraySplit(name="test images of digits", images=pixels[test], labels=labels[test], classes=CLASSES),
    )


def enlarge(images: npt.NDArray[np.float32], size: int) -> npt.NDArray[np.uint8]:
    """Enlarge [N, 8, 8] images of 0..16 to [N, size, size, 1] bytes by bilinear interpolation, borders repeated."""
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
        raise DataError("scikit-learn, which ships the digits, is not installed in this Python; install scikit-learn")
    return Path(spec.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"


def _read(path: Path) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    try:
        with gzip.open(path, "rt", encoding="ascii") as file:
            table = np.loadtxt(file, delimiter=",", dtype=np.float32, ndmin=2)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; reinstall scikit-learn, which ships it") from None
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(f"{path}: cannot be read as the digits: {error}; reinstall scikit-learn") from error
    if table.shape[1] != SOURCE_SIZE * SOURCE_SIZE + 1:
        raise DataError(f"{path}: {table.shape[1]} columns a row; the digits have {SOURCE_SIZE * SOURCE_SIZE + 1}")
    return table[:, :-1].reshape(-1, SOURCE_SIZE, SOURCE_SIZE), table[:, -1].astype(np.int32)
