"""IDX files, and pairs of them with images and labels."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.data.datasets.fashion_mnist import load_fashion_mnist
from payload.data.datasets.idx import IdxError, find_idx, read_idx, read_idx_pair

CODES = {">u1": 0x08, ">i1": 0x09, ">i2": 0x0B, ">i4": 0x0C, ">f4": 0x0D, ">f8": 0x0E}


def idx_bytes(array: npt.NDArray[np.generic], kind: str = ">u1") -> bytes:
    header = struct.pack(f">HBB{array.ndim}I", 0, CODES[kind], array.ndim, *array.shape)
    return header + array.astype(kind).tobytes()


@given(
    kind=st.sampled_from(sorted(CODES)), shape=st.lists(st.integers(0, 4), min_size=1, max_size=4), packed=st.booleans()
)
def test_written_arrays_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, kind: str, shape: list[int], packed: bool
) -> None:
    array = (np.arange(int(np.prod(shape))) % 128).reshape(shape)  # fits into every kind
    path = tmp_path_factory.mktemp("idx") / "file"
    content = idx_bytes(array, kind)
    path.write_bytes(gzip.compress(content, mtime=0) if packed else content)
    values = read_idx(path)
    assert np.array_equal(values, array)
    assert values.dtype.isnative


WHOLE = idx_bytes(np.arange(12).reshape(3, 2, 2))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "truncated"),
        (WHOLE[:3], "truncated"),
        (WHOLE[:9], "truncated: 9 bytes, less than its header of 16"),
        (WHOLE[:-1], r"truncated: 27 bytes, but the shape \(3, 2, 2\) in its header needs 28"),
        (WHOLE + b"\0", "too long"),
        (b"<!DOCTYPE html>", "not an IDX file"),
        (b"\0\0\x07\x01\0\0\0\0", "not an IDX file"),
        (gzip.compress(WHOLE, mtime=0)[:-9], "truncated"),
        (
            gzip.compress(WHOLE, mtime=0)[:14] + b"\xff\xff\xff" + gzip.compress(WHOLE, mtime=0)[17:],
            "damaged|truncated",
        ),
    ],
)
def test_damaged_file_is_reported_with_error(tmp_path: Path, content: bytes, fault: str) -> None:
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(IdxError, match=fault) as caught:
        read_idx(path)
    assert caught.value.path == path
    assert str(path) in str(caught.value)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(IdxError, match="no such file"):
        read_idx(tmp_path / "absent")
    with pytest.raises(IdxError, match=r"absent: no such file, with or without \.gz"):
        find_idx(tmp_path, "absent")


def test_uncompressed_file_is_preferred(tmp_path: Path) -> None:
    (tmp_path / "a.gz").touch()
    assert find_idx(tmp_path, "a") == tmp_path / "a.gz"
    (tmp_path / "a").touch()
    assert find_idx(tmp_path, "a") == tmp_path / "a"


def test_invalid_label_is_rejected(tmp_path: Path) -> None:
    write_part(tmp_path, "train", 20)
    highest = int(read_idx_pair(tmp_path, "train", classes=10)[1].max())
    with pytest.raises(IdxError, match=f"train-labels-idx1-ubyte: has label {highest}, .* must be 0 to {highest - 1}"):
        read_idx_pair(tmp_path, "train", classes=highest)


def test_swapped_files_are_rejected(tmp_path: Path) -> None:
    write_part(tmp_path, "train", 3)
    labels = tmp_path / "train-labels-idx1-ubyte"
    (tmp_path / "train-images-idx3-ubyte").write_bytes(labels.read_bytes())
    with pytest.raises(IdxError, match="must have bytes in 3 dimensions"):
        read_idx_pair(tmp_path, "train", classes=10)


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
    with pytest.raises(IdxError, match="train-labels-idx1-ubyte: 19 labels, but train-images-idx3-ubyte has 20 images"):
        load_fashion_mnist(tmp_path)


def test_missing_file_or_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(IdxError, match="no such directory"):
        load_fashion_mnist(tmp_path / "absent")
    write_part(tmp_path, "train", 20)
    with pytest.raises(IdxError, match="t10k-images-idx3-ubyte"):
        load_fashion_mnist(tmp_path)
