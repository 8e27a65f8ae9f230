from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from payload.data.datasets.fashion_mnist import load_fashion_mnist
from payload.data.datasets.idx import IdxError


def write_part(directory: Path, prefix: str, count: int, *, labels: int | None = None, packed: bool = False) -> None:
    random = np.random.default_rng(count)
    images = random.integers(0, 256, (count, 28, 28)).astype(np.uint8).tobytes()
    classes = random.integers(0, 10, labels or count).astype(np.uint8).tobytes()
    for name, content in (
        (f"{prefix}-images-idx3-ubyte", struct.pack(">HBB3I", 0, 8, 3, count, 28, 28) + images),
        (f"{prefix}-labels-idx1-ubyte", struct.pack(">HBBI", 0, 8, 1, labels or count) + classes),
    ):
        if packed:
            (directory / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (directory / name).write_bytes(content)


def test_four_files_make_a_data_set(tmp_path: Path) -> None:
    write_part(tmp_path, "train", 20)
    write_part(tmp_path, "t10k", 10, packed=True)
    train, test = load_fashion_mnist(tmp_path)
    assert train.images.shape == (20, 28, 28, 1)
    assert test.images.shape == (10, 28, 28, 1)
    assert train.labels.dtype == np.int32


def test_labels_and_images_must_match(tmp_path: Path) -> None:
    write_part(tmp_path, "train", 20, labels=19)
    write_part(tmp_path, "t10k", 10)
    with pytest.raises(IdxError, match="train-labels-idx1-ubyte: 19 labels, but 20 images"):
        load_fashion_mnist(tmp_path)


def test_a_label_beyond_the_classes_is_refused(tmp_path: Path) -> None:
    write_part(tmp_path, "train", 20)
    write_part(tmp_path, "t10k", 1)
    path = tmp_path / "t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1] + b"\x0b")
    with pytest.raises(IdxError, match="label 11"):
        load_fashion_mnist(tmp_path)


def test_a_missing_file_or_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(IdxError, match="no such directory"):
        load_fashion_mnist(tmp_path / "absent")
    write_part(tmp_path, "train", 20)
    with pytest.raises(IdxError, match="t10k-images-idx3-ubyte"):
        load_fashion_mnist(tmp_path)
