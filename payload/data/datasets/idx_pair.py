"""Images and their labels, in two IDX files of MNIST's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from payload.data.datasets.idx import IdxError, find_idx, read_idx


def read_idx_pair(directory: Path, prefix: str, *, classes: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Read images, [N, height, width, 1], and labels, [N], 0 to classes - 1, of PREFIX-images-idx3-ubyte and its pair.

    Raises IdxError for a file that is missing, damaged, or of another shape than images and labels have.
    """
    images = _read(find_idx(directory, f"{prefix}-images-idx3-ubyte"), dimensions=3)
    label_file = find_idx(directory, f"{prefix}-labels-idx1-ubyte")
    labels = _read(label_file, dimensions=1)
    if len(images) != len(labels):
        raise IdxError(label_file, f"{len(labels)} labels, but {len(images)} images in the file beside it")
    if len(labels) and labels.max() >= classes:
        raise IdxError(label_file, f"label {labels.max()}; must be 0 to {classes - 1}")
    return images[..., np.newaxis], labels.astype(np.int32)


def _read(path: Path, *, dimensions: int) -> npt.NDArray[Any]:
    values = read_idx(path)
    if values.ndim != dimensions or values.dtype != np.uint8:
        raise IdxError(path, f"holds {values.dtype} of shape {values.shape}; expected bytes in {dimensions} dimensions")
    return values
