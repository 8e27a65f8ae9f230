from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from payload.data.dataset import DataError
from payload.data.records import index as record_index
from payload.data.records.index import RecordIndex, make_index, open_index, record_files
from payload.data.records.tfrecord import RecordError, framed
from tests.payload.data.drawings import write_records

PARTS = ("train", "training")
FIRST, SECOND = "train-00000-of-00002", "train-00001-of-00002"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_records(tmp_path, training=10, test=2)
    return tmp_path


def test_files_of_a_part_are_listed_in_order_with_missing_ones(tmp_path: Path) -> None:
    for number in (3, 0, 1):
        (tmp_path / f"train-{number:05d}-of-00005.tfrecord").touch()
    (tmp_path / "validation-00000-of-00001").touch()
    (tmp_path / "train.index").touch()
    names = [f"train-{number:05d}-of-00005.tfrecord" for number in range(5)]
    assert record_files(tmp_path, PARTS) == ([names[0], names[1], names[3]], [names[2], names[4]])
    assert record_files(tmp_path, ("test", "validation")) == (["validation-00000-of-00001"], [])


@pytest.mark.parametrize("name", ["train-00001-of-00003", "train-00002-of-00003", f"{SECOND}.tfrecord"])
def test_mixed_sets_of_files_are_rejected(directory: Path, name: str) -> None:
    (directory / name).touch()
    with pytest.raises(DataError, match=f"train-0000.-of-00002 and {name} are of different sets of files; remove"):
        record_files(directory, PARTS)


def test_index_lists_each_record(directory: Path) -> None:
    index = open_index(directory, PARTS, skip=False)
    assert index.files == (FIRST, SECOND)
    assert index.table["file"].tolist() == [0] * 5 + [1] * 5
    assert index.table["label"].tolist() == [1, 2, 3, 4] * 2 + [1, 2]
    assert (index.table["height"] >= 48).all()
    for row in index.table:
        content = (directory / index.files[row["file"]]).read_bytes()
        start = row["offset"] + 12 + row["start"]
        assert content[start : start + 2] == b"\xff\xd8"
        assert content[start + row["size"] - 2 : start + row["size"]] == b"\xff\xd9"


def test_index_is_created_once_for_the_same_files(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    scan = record_index.scan

    def counted(path: Path, *, skip: bool) -> object:
        made.append(path)
        return scan(path, skip=skip)

    monkeypatch.setattr(record_index, "scan", counted)
    first = open_index(directory, PARTS, skip=False)
    again = open_index(directory, PARTS, skip=False)
    assert len(made) == 2
    assert np.array_equal(first.table, again.table)
    write_records(directory, training=14, test=2)
    assert len(open_index(directory, PARTS, skip=False).table) == 14
    (directory / "train.index").write_bytes(b"damaged")
    assert len(open_index(directory, PARTS, skip=False).table) == 14
    assert len(made) == 6


def test_index_is_in_cache_if_directory_is_read_only(
    directory: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    open_index(directory, PARTS, skip=False)
    assert not (directory / "train.index").exists()
    assert list(home.rglob("train.index"))


def flip(place: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[place] ^= 0x10
        path.write_bytes(content)

    return damage


DAMAGES = [
    (Path.unlink, "no such file; the split lacks 1 of its files", 5),
    (lambda path: path.write_bytes(b""), "the file is empty", 5),
    (lambda path: path.write_bytes(path.read_bytes()[:-1]), "record at byte .* but the file ends after", 9),
    (
        lambda path: path.write_bytes(path.read_bytes()[:5]),
        "record at byte 0: the file ends within the record's header",
        5,
    ),
    (flip(2), "record at byte 0: the checksum of the record's length is wrong", 5),
    (lambda path: path.write_bytes(framed(b"no example") + path.read_bytes()), "record at byte 0: ", 10),
]


@pytest.mark.parametrize(("damage", "fault", "left"), DAMAGES)
def test_damaged_file_is_reported_or_skipped_on_request(
    directory: Path, damage: Callable[[Path], None], fault: str, left: int
) -> None:
    damage(directory / SECOND)
    with pytest.raises(RecordError, match=fault) as caught:
        open_index(directory, PARTS, skip=False)
    assert caught.value.path == directory / SECOND
    for _ in range(2):  # built first, then cached
        index = open_index(directory, PARTS, skip=True)
        assert len(index.table) == left
        (line,) = index.damage
        assert str(directory / SECOND) in line
    with pytest.raises(RecordError, match=fault):
        open_index(directory, PARTS, skip=False)


def test_directory_without_record_files_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no record files train-00000-of-NNNNN"):
        open_index(tmp_path, PARTS, skip=True)


def test_index_is_read_back(directory: Path) -> None:
    index = make_index(directory, [FIRST], skip=False)
    again = RecordIndex.from_bytes(directory, index.to_bytes())
    assert (again.files, again.sizes, again.damage) == (index.files, index.sizes, index.damage)
    assert np.array_equal(again.table, index.table)
    for content in (b"", index.to_bytes()[:-30], b"PK" + bytes(50)):
        with pytest.raises(ValueError):
            RecordIndex.from_bytes(directory, content)
