from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from payload.data.dataset import DataError, View
from payload.data.records.record_split import WINDOW_FILES, RecordReader, RecordSplit, open_record_splits
from tests.payload.data.drawings import SHAPES, write_records


def opened(directory: Path, *, classes: int = 0) -> tuple[RecordSplit, RecordSplit]:
    train, test = open_record_splits(directory, name="drawings", classes=classes, skip=False, cache="auto")
    assert test is not None
    return train, test


@pytest.mark.parametrize("first_label", [0, 1])
def test_labels_may_begin_at_0_or_1(tmp_path: Path, first_label: int) -> None:
    write_records(tmp_path, training=10, test=4, first_label=first_label)
    for part in opened(tmp_path):
        assert part.labels.min() == 0
        assert part.classes == len(SHAPES)


def test_test_labels_start_like_training_labels(tmp_path: Path) -> None:
    write_records(tmp_path, training=8, test=1, first_label=0)
    write_records(tmp_path / "other", training=8, test=8, first_label=1)
    for file in tmp_path.glob("validation*"):
        file.unlink()
    for file in (tmp_path / "other").glob("validation*"):
        file.rename(tmp_path / file.name)
    with pytest.raises(DataError, match="the test images of drawings have 5 classes, but must have at most 4"):
        opened(tmp_path)


def test_classes_may_exceed_labels_but_not_be_fewer(tmp_path: Path) -> None:
    write_records(tmp_path, training=10, test=4)
    assert opened(tmp_path, classes=1000)[1].classes == 1000
    with pytest.raises(DataError, match="the training images of drawings have 4 classes, but must have at most 3"):
        opened(tmp_path, classes=3)


def test_test_files_are_needed_only_if_used(tmp_path: Path) -> None:
    write_records(tmp_path, training=10, test=4)
    for file in tmp_path.glob("validation*"):
        file.unlink()
    train, test = open_record_splits(tmp_path, name="drawings", classes=0, skip=False, cache="auto", with_test=False)
    assert (train.examples, test) == (10, None)
    with pytest.raises(DataError, match="no record files validation-00000-of-NNNNN"):
        opened(tmp_path)
    with pytest.raises(DataError, match="absent: no such directory"):
        opened(tmp_path / "absent")


def test_order_has_each_record_once_and_keeps_file_windows_together(tmp_path: Path) -> None:
    files = 2 * WINDOW_FILES + 3
    write_records(tmp_path, training=4 * files, test=1, files=files, side=8)
    part, _ = opened(tmp_path)
    order = part.order(seed=1, epoch=3)
    assert sorted(order) == list(range(part.examples))
    assert np.array_equal(order, part.order(seed=1, epoch=3))
    assert not np.array_equal(order, part.order(seed=1, epoch=4))
    file_of = part.sets[0].table["file"][order]
    windows = [set(file_of[start : start + 4 * WINDOW_FILES]) for start in range(0, len(order), 4 * WINDOW_FILES)]
    assert [len(window) for window in windows] == [WINDOW_FILES, WINDOW_FILES, 3]
    assert not windows[0] & windows[1]
    assert sorted(windows[0]) != list(range(WINDOW_FILES)), "files are shuffled too"


def test_selected_records_keep_labels_in_file_order(tmp_path: Path) -> None:
    write_records(tmp_path, training=10, test=1)
    part, _ = opened(tmp_path)
    picked = part.pick(np.array([9, 2]))
    assert picked.labels.tolist() == [2, 1]
    assert picked.sets[0].table["file"].tolist() == [0, 1]
    assert picked.digest() != part.digest()


def test_digest_changes_with_a_label(tmp_path: Path) -> None:
    write_records(tmp_path / "one", training=8, test=1)
    write_records(tmp_path / "same", training=8, test=1)
    write_records(tmp_path / "other", training=8, test=1, first_label=0)
    one, same, other = (opened(tmp_path / name)[0].digest() for name in ("one", "same", "other"))
    assert one == same
    assert one != other


def test_smallest_sufficient_images_are_read(tmp_path: Path) -> None:
    for side, name in ((160, "160"), (352, "352"), (400, "original")):
        write_records(tmp_path / name, training=2, test=1, side=side)
    part, _ = opened(tmp_path)
    chosen = [part.records_for(View(size=(side, side))).directory.name for side in (128, 140, 141, 224, 288, 350)]
    assert chosen == ["160", "160", "352", "352", "352", "original"]
    assert part.examples == 2


def test_resolutions_must_have_same_examples(tmp_path: Path) -> None:
    write_records(tmp_path / "160", training=8, test=1, side=16)
    write_records(tmp_path / "352", training=9, test=1, side=32)
    with pytest.raises(DataError, match=r"160 and .*352 have different records"):
        opened(tmp_path)


class SlowSet(set[int]):
    """A set that takes long to compute a difference, so that another thread can read it too."""

    def __rsub__(self, other: Any) -> set[int]:
        found: set[int] = other.difference(self)
        time.sleep(0.05)
        return found


def test_damage_that_two_threads_find_is_printed_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_records(tmp_path, training=4, test=4)
    train, _ = opened(tmp_path)
    train.damaged = SlowSet()
    reader = RecordReader(split=train, records=train.sets[0])
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: reader.leave_out(np.array([1]), "record 1 is damaged"), range(4)))
    assert train.damaged == {1}
    assert capfd.readouterr().err.count("skipped: record 1 is damaged") == 1
