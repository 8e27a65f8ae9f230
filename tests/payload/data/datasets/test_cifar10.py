from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from payload.data.dataset import DataError
from payload.data.datasets.cifar10 import FOLDER, RECORD, load_cifar10
from tests.payload.data.drawings import drawing, write_cifar10


def test_six_files_make_two_parts(tmp_path: Path) -> None:
    write_cifar10(tmp_path, per_file=4, test=3)
    train, test = load_cifar10(tmp_path)
    assert (train.examples, test.examples) == (20, 3)
    assert (train.size, train.channels, train.classes) == ((32, 32), 3, 10)
    assert train.labels.tolist() == [0, 1, 2, 3] * 5
    assert np.array_equal(train.images[5], drawing(1, height=32, width=32, seed=100_001))


def test_published_archive_may_be_unpacked_below_the_directory(tmp_path: Path) -> None:
    write_cifar10(tmp_path / FOLDER, per_file=1, test=1)
    assert load_cifar10(tmp_path)[0].examples == 5


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def mislabel(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[RECORD] = 10
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (cut, f"{2 * RECORD - 1} bytes, not a multiple of {RECORD}, the size of a record"),
        (lambda path: path.write_bytes(b""), "0 bytes, not a multiple"),
        (mislabel, f"record 1, at byte {RECORD}, has label 10, but labels must be 0 to 9"),
        (Path.unlink, "no such file"),
    ],
)
def test_damaged_file_is_reported_with_error(tmp_path: Path, damage: object, fault: str) -> None:
    write_cifar10(tmp_path, per_file=2, test=2)
    assert callable(damage)
    damage(tmp_path / "data_batch_3.bin")
    with pytest.raises(DataError, match=fault) as caught:
        load_cifar10(tmp_path)
    assert str(tmp_path / "data_batch_3.bin") in str(caught.value)


def test_missing_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent: no such directory"):
        load_cifar10(tmp_path / "absent")
