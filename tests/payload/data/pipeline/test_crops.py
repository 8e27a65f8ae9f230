from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.data.pipeline.crops import middle_boxes, random_boxes

SIZES = st.lists(st.tuples(st.integers(1, 2000), st.integers(1, 2000)), min_size=1, max_size=20)


@given(SIZES, st.floats(0.01, 1), st.integers(0, 100))
def test_random_boxes_lie_within_their_images(sizes: list[tuple[int, int]], smallest: float, seed: int) -> None:
    array = np.array(sizes)
    boxes = random_boxes(array, np.arange(len(sizes)), smallest=smallest, seed=seed, epoch=0)
    top, left, height, width = boxes.T
    assert (boxes[:, :2] >= 0).all() and (boxes[:, 2:] >= 1).all()
    assert (top + height <= array[:, 0]).all() and (left + width <= array[:, 1]).all()


def test_random_boxes_keep_the_rules_of_area_and_ratio() -> None:
    sizes = np.tile([375, 500], (5000, 1))
    boxes = random_boxes(sizes, np.arange(5000), smallest=0.25, seed=1, epoch=0).astype(float)
    areas, ratios = boxes[:, 2] * boxes[:, 3] / (375 * 500), boxes[:, 3] / boxes[:, 2]
    assert areas.min() > 0.248 and areas.max() > 0.95
    assert ratios.min() == pytest.approx(3 / 4, abs=0.02) and ratios.max() == pytest.approx(4 / 3, abs=0.02)
    corners = boxes[:, :2].max(axis=0)
    assert corners[0] > 150 and corners[1] > 200, "boxes lie anywhere, not in the middle alone"


def test_an_image_too_narrow_for_any_ratio_keeps_its_middle() -> None:
    (box,) = random_boxes(np.array([[10, 1000]]), np.array([0]), smallest=0.9, seed=1, epoch=0)
    assert box.tolist() == [0, 494, 10, 13]


@given(SIZES, st.integers(1, 300), st.integers(1, 300), st.floats(0.1, 1))
def test_the_middle_lies_within_and_is_centred(
    sizes: list[tuple[int, int]], height: int, width: int, fraction: float
) -> None:
    array = np.array(sizes)
    top, left, tall, wide = middle_boxes(array, (height, width), fraction=fraction).T
    for start, length, whole in ((top, tall, array[:, 0]), (left, wide, array[:, 1])):
        assert (start >= 0).all() and (length >= 1).all() and (start + length <= whole).all()
        assert (abs(start - (whole - length - start)) <= 1).all()


@pytest.mark.parametrize(
    ("size", "shape", "fraction", "box"),
    [
        ((28, 28), (28, 28), 1.0, [0, 0, 28, 28]),
        ((100, 200), (50, 50), 1.0, [0, 50, 100, 100]),
        ((256, 256), (224, 224), 0.875, [16, 16, 224, 224]),
        ((256, 400), (224, 320), 0.875, [16, 40, 224, 320]),
        ((256, 300), (224, 320), 0.875, [23, 0, 210, 300]),
    ],
)
def test_the_middle_has_the_ratio_of_its_shape(
    size: tuple[int, int], shape: tuple[int, int], fraction: float, box: list[int]
) -> None:
    assert middle_boxes(np.array([size]), shape, fraction=fraction)[0].tolist() == box
