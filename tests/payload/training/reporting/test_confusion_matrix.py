from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from agent.files.atomic_write import StorageError
from payload.training.reporting.confusion_matrix import (
    MOST,
    SIDE,
    Confusion,
    Mistake,
    mistakes_of,
    picture,
    surest,
    write_confusion,
    write_mistakes,
)

CATS = Confusion(labels=("cat", "dog", "cow"), counts=np.array([[8, 2, 0], [1, 3, 0], [0, 0, 0]]))


def test_accuracy_recall_and_precision_follow_from_the_counts() -> None:
    assert CATS.images == 14
    assert CATS.accuracy == 11 / 14
    assert CATS.recall() == [0.8, 0.75, None]
    assert CATS.precision() == [8 / 9, 0.6, None]


def test_most_confused_pairs_are_listed_first() -> None:
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


def test_unwritable_path_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="absent"):
        write_confusion(tmp_path / "absent", CATS)


def mistake(confidence: float, label: int = 0) -> Mistake:
    return Mistake(label=label, taken_for=1, confidence=confidence, png=b"")


def test_mistakes_are_misclassified_images_most_confident_first() -> None:
    images = np.arange(5 * 4 * 4, dtype=np.float32).reshape(5, 4, 4, 1)
    labels, taken_for = np.array([0, 1, 2, 0, 1]), np.array([0, 2, 0, 1, 0])
    weights, confidence = np.array([1, 1, 1, 1, 0], np.float32), np.array([0.9, 0.3, 0.8, 0.5, 0.99], np.float32)
    found = mistakes_of(images, labels, weights, taken_for, confidence)
    assert [(each.label, each.taken_for) for each in found] == [(2, 0), (0, 1), (1, 2)]
    assert [each.confidence for each in found] == pytest.approx([0.8, 0.5, 0.3])
    assert np.asarray(Image.open(io.BytesIO(found[0].png))).tolist() == images[2, ..., 0].astype(int).tolist()


@given(confidences=st.lists(st.floats(0, 1), max_size=40), cut=st.integers(0, 40))
def test_most_confident_of_parts_are_most_confident_of_all(confidences: list[float], cut: int) -> None:
    every = [mistake(confidence, label) for label, confidence in enumerate(confidences)]
    parts = [*surest(every[:cut]), *surest(reversed(every[cut:]))]
    assert surest(parts) == surest(every)
    assert [each.confidence for each in surest(every)] == sorted(confidences, reverse=True)[:MOST]


@pytest.mark.parametrize(
    ("shape", "size"), [((28, 28, 1), (28, 28)), ((224, 224, 3), (48, 48)), ((96, 192, 3), (48, 24))]
)
def test_picture_keeps_its_proportions_and_is_small(shape: tuple[int, int, int], size: tuple[int, int]) -> None:
    noise = np.random.default_rng(0).integers(0, 256, shape).astype(np.float32)
    png = picture(noise)
    assert Image.open(io.BytesIO(png)).size == size
    assert len(png) <= 3 * SIDE * SIDE + 1000


def test_file_contains_the_class_names(tmp_path: Path) -> None:
    png = picture(np.zeros((2, 2, 3)))
    write_mistakes(tmp_path, [Mistake(label=1, taken_for=0, confidence=0.987654, png=png)], ["cat", "dog"])
    (found,) = json.loads((tmp_path / "mistakes.json").read_text())["images"]
    assert (found["class"], found["recognized_as"], found["confidence"]) == ("dog", "cat", 0.9877)
    assert base64.b64decode(found["png"]) == png
