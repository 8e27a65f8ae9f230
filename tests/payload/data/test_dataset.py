from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from payload.data.dataset import DataError, Dataset, load_dataset


def small(**changes: Any) -> Dataset:
    values: dict[str, Any] = {
        "train_images": np.zeros((3, 4, 4, 1), np.uint8),
        "train_labels": np.array([0, 1, 1], np.int32),
        "test_images": np.zeros((2, 4, 4, 1), np.uint8),
        "test_labels": np.array([0, 1], np.int32),
        "classes": 2,
    }
    return Dataset(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"train_labels": np.zeros(2, np.int32)}, "3 training images, but 2 labels"),
        ({"test_labels": np.array([0, 2], np.int32)}, "test labels 0 to 2"),
        ({"test_images": np.zeros((2, 5, 4, 1), np.uint8)}, "different shapes"),
        ({"test_images": np.zeros((0, 4, 4, 1), np.uint8), "test_labels": np.zeros(0, np.int32)}, "no test images"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(DataError, match=fault):
        small(**changes)


def test_the_digest_tells_one_changed_pixel() -> None:
    data = small()
    images = data.train_images.copy()
    images[2, 3, 3, 0] = 1
    assert small().digest() == data.digest()
    assert dataclasses.replace(data, train_images=images).digest() != data.digest()


def test_an_unknown_data_set_is_refused() -> None:
    with pytest.raises(DataError, match="no data set 'flowers'"):
        load_dataset("flowers", None)
