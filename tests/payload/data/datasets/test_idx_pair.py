from __future__ import annotations

from pathlib import Path

import pytest

from payload.data.datasets.idx import IdxError
from payload.data.datasets.idx_pair import read_idx_pair
from tests.payload.data.datasets.test_fashion_mnist import write_part


def test_images_get_a_channel_and_labels_are_whole_numbers(tmp_path: Path) -> None:
    write_part(tmp_path, "train", 5)
    images, labels = read_idx_pair(tmp_path, "train", classes=10)
    assert (images.shape, images.dtype.name) == ((5, 28, 28, 1), "uint8")
    assert (labels.shape, labels.dtype.name) == ((5,), "int32")


def test_a_label_that_is_no_class_is_refused(tmp_path: Path) -> None:
    write_part(tmp_path, "train", 20)
    highest = int(read_idx_pair(tmp_path, "train", classes=10)[1].max())
    with pytest.raises(IdxError, match=f"train-labels-idx1-ubyte: label {highest}; must be 0 to {highest - 1}"):
        read_idx_pair(tmp_path, "train", classes=highest)


def test_files_that_are_swapped_are_refused(tmp_path: Path) -> None:
    write_part(tmp_path, "train", 3)
    labels = tmp_path / "train-labels-idx1-ubyte"
    (tmp_path / "train-images-idx3-ubyte").write_bytes(labels.read_bytes())
    with pytest.raises(IdxError, match="expected bytes in 3 dimensions"):
        read_idx_pair(tmp_path, "train", classes=10)
