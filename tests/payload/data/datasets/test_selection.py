from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.data.dataset import DataError
from payload.data.datasets.arrays import ArraySplit
from payload.data.datasets.selection import held_back, limited, stratified


def part(examples: int) -> ArraySplit:
    images = np.arange(examples, dtype=np.uint8).reshape(-1, 1, 1, 1)
    return ArraySplit(name="images", images=images, labels=np.arange(examples, dtype=np.int32) % 4, classes=4)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=300), st.floats(0, 1))
def test_split_is_complete_without_duplicates_and_stratified(labels: list[int], fraction: float) -> None:
    first, second = stratified(np.array(labels), fraction)
    assert sorted([*first, *second]) == list(range(len(labels)))
    for label in set(labels):
        held = sum(labels[position] == label for position in second)
        assert abs(held - fraction * labels.count(label)) <= 0.5


def test_same_validation_images_are_drawn_in_every_run() -> None:
    train, validation = held_back(part(100), 0.2)
    again, _ = held_back(part(100), 0.2)
    assert (train.examples, validation.examples) == (80, 20)
    assert train.digest() == again.digest()


def test_validation_images_are_drawn_from_the_whole_class() -> None:
    _, second = stratified(np.zeros(1000, np.int32), 0.2)
    assert 50 < (second >= 500).sum() < 150


def test_split_without_training_images_is_rejected() -> None:
    with pytest.raises(DataError, match=r"--validation-fraction 0\.1: of 4 images it leaves 4 for training and 0"):
        held_back(part(4), 0.1)


def test_limit_takes_the_first_images() -> None:
    assert limited(part(10), 0).examples == 10
    first = limited(part(10), 3)
    assert isinstance(first, ArraySplit)
    assert first.images.ravel().tolist() == [0, 1, 2]
    with pytest.raises(DataError, match="--train-limit 11: must be at most 10"):
        limited(part(10), 11)
