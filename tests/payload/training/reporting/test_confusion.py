from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from agent.files.atomic_write import StorageError
from payload.training.reporting.confusion import Confusion, write_confusion

CATS = Confusion(labels=("cat", "dog", "cow"), counts=np.array([[8, 2, 0], [1, 3, 0], [0, 0, 0]]))


def test_accuracy_recall_and_precision_follow_from_the_counts() -> None:
    assert CATS.images == 14
    assert CATS.accuracy == 11 / 14
    assert CATS.recall() == [0.8, 0.75, None]
    assert CATS.precision() == [8 / 9, 0.6, None]


def test_the_pairs_confused_most_come_first_and_none_that_never_were() -> None:
    assert CATS.confused() == [("cat", "dog", 2), ("dog", "cat", 1)]
    assert CATS.confused(1) == [("cat", "dog", 2)]


def test_counts_must_have_a_row_and_a_column_for_each_class() -> None:
    with pytest.raises(ValueError, match="a row and a column for each of 2"):
        Confusion(labels=("cat", "dog"), counts=np.zeros((2, 3), np.int64))


def test_file_has_a_line_for_each_row(tmp_path: Path) -> None:
    write_confusion(tmp_path, CATS)
    text = (tmp_path / "confusion.json").read_text()
    assert json.loads(text) == CATS.document()
    assert "  [8, 2, 0],\n" in text


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="absent"):
        write_confusion(tmp_path / "absent", CATS)
