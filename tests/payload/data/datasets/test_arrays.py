from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from payload.data.dataset import DataError
from payload.data.datasets.arrays import ArraySplit


def small(**changes: Any) -> ArraySplit:
    values: dict[str, Any] = {
        "name": "test images of nothing",
        "images": np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5, 1),
        "labels": np.array([0, 1, 1], np.int32),
        "classes": 2,
    }
    return ArraySplit(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"labels": np.zeros(2, np.int32)}, "3 test images of nothing, but 2 labels"),
        ({"labels": np.array([0, 1, 2], np.int32)}, "the test images of nothing have labels 0 to 2; must be 0 to 1"),
        ({"images": np.zeros((0, 4, 4, 1), np.uint8), "labels": np.zeros(0, np.int32)}, "no test images of nothing"),
    ],
)
def test_inconsistent_arrays_are_rejected(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(DataError, match=fault):
        small(**changes)


def test_data_set_describes_its_content() -> None:
    part = small()
    assert (part.examples, part.classes, part.channels, part.size) == (3, 2, 1, (4, 5))


def test_digest_changes_with_one_pixel() -> None:
    part = small()
    images = part.images.copy()
    images[2, 3, 3, 0] += 1
    assert small().digest() == part.digest()
    assert dataclasses.replace(part, images=images).digest() != part.digest()


def test_selection_has_its_images_and_labels() -> None:
    picked = small().pick(np.array([2, 0]))
    assert np.array_equal(picked.images, small().images[[2, 0]])
    assert picked.labels.tolist() == [1, 0]
