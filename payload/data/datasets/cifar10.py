"""Load CIFAR-10 (Krizhevsky 2009) from its binary version: 60,000 color images of 32 x 32 pixels in six files.

Each record is a label byte, then 1,024 bytes each of red, green and blue.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from payload.data.dataset import DataError
from payload.data.datasets.arrays import ArraySplit

CLASSES: Final = 10
SIDE: Final = 32
RECORD: Final = 1 + 3 * SIDE * SIDE
TRAINING_FILES: Final = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_FILES: Final = ("test_batch.bin",)
FOLDER: Final = "cifar-10-batches-bin"
"""Directory that the published archive unpacks to."""


def load_cifar10(directory: Path) -> tuple[ArraySplit, ArraySplit]:
    """Read training and test images from the directory with the six files, or from its parent.

    A file may contain fewer than the published 10,000 records, for tests. Raises DataError, which names the file.
    """
    folder = directory / FOLDER if (directory / FOLDER).is_dir() else directory
    if not folder.is_dir():
        raise DataError(f"{directory}: no such directory; set --data-dir to the directory with {TRAINING_FILES[0]}")
    return _part(folder, TRAINING_FILES, "training"), _part(folder, TEST_FILES, "test")


def _part(folder: Path, names: tuple[str, ...], which: str) -> ArraySplit:
    records = np.concatenate([_read(folder / name) for name in names])
    pixels = records[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return ArraySplit(
        name=f"{which} images of CIFAR-10",
        images=np.ascontiguousarray(pixels),
        labels=records[:, 0].astype(np.int32),
        classes=CLASSES,
    )


def _read(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; unpack all files of cifar-10-binary.tar.gz") from None
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read: {error.strerror}; make it readable, or copy the file again"
        ) from error
    if not content or len(content) % RECORD:
        what = f"{path}: {len(content)} bytes, not a multiple of {RECORD}, the size of a record"
        raise DataError(f"{what}; copy the file again")
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    wrong = np.flatnonzero(records[:, 0] >= CLASSES)
    if len(wrong):
        found = f"record {wrong[0]}, at byte {wrong[0] * RECORD}, has label {records[wrong[0], 0]}"
        raise DataError(f"{path}: {found}, but labels must be 0 to {CLASSES - 1}; copy the file again")
    return records
