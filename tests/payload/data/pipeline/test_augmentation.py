"""Boxes, transforms and random numbers of images."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.data.dataset import View
from payload.data.pipeline.augmentation import CROP, FLIP, flips, middle_boxes, random_boxes, transforms, uniforms

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


def test_image_too_narrow_for_any_ratio_keeps_its_middle() -> None:
    (box,) = random_boxes(np.array([[10, 1000]]), np.array([0]), smallest=0.9, seed=1, epoch=0)
    assert box.tolist() == [0, 494, 10, 13]


@given(SIZES, st.integers(1, 300), st.integers(1, 300), st.floats(0.1, 1))
def test_middle_is_inside_and_centered(sizes: list[tuple[int, int]], height: int, width: int, fraction: float) -> None:
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
def test_middle_has_the_ratio_of_its_shape(
    size: tuple[int, int], shape: tuple[int, int], fraction: float, box: list[int]
) -> None:
    assert middle_boxes(np.array([size]), shape, fraction=fraction)[0].tolist() == box


WHOLE = np.array([[0, 0, 28, 20]])


def maps(view: View, box: npt.NDArray[np.int64] = WHOLE, *, mirrored: bool = False, **values: Any) -> npt.NDArray[Any]:
    given = {"seed": 1, "epoch": 0, **values}
    return transforms(np.tile(box, (50, 1)), np.full(50, mirrored), view, np.arange(50), **given)


def source(row: npt.NDArray[Any], x: float, y: float) -> tuple[float, float]:
    a, b, c, d, e, f = row[:6]
    return a * x + b * y + c, d * x + e * y + f


def test_view_of_same_size_keeps_every_pixel() -> None:
    assert np.allclose(maps(View(size=(28, 20))), [[1, 0, 0, 0, 1, 0, 0, 0]] * 50)


def test_mirrored_image_starts_at_its_right_edge() -> None:
    row = maps(View(size=(28, 20)), mirrored=True)[0]
    assert np.allclose(source(row, 0, 3), (19, 3))
    assert np.allclose(source(row, 19, 3), (0, 3))


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 19), st.integers(1, 11))
def test_edges_of_box_become_edges_of_view(top: int, left: int, height: int, width: int) -> None:
    row = maps(View(size=(56, 40)), np.array([[top, left, height, width]]))[0]
    assert np.allclose(source(row, -0.5, -0.5), (left - 0.5, top - 0.5), atol=1e-4)
    assert np.allclose(source(row, 39.5, 55.5), (left + width - 0.5, top + height - 0.5), atol=1e-4)


@given(st.floats(0, 180), st.floats(0, 0.5))
def test_rotation_and_zoom_keep_the_middle(rotation: float, zoom: float) -> None:
    for row in maps(View(size=(28, 20), rotation_deg=rotation, zoom_fraction=zoom)):
        assert np.allclose(source(row, 9.5, 13.5), (9.5, 13.5), atol=1e-3)


@given(st.floats(0, 1))
def test_shifts_stay_within_their_part_of_the_image(shift: float) -> None:
    drawn = maps(View(size=(28, 20), shift_fraction=shift))
    assert (np.abs(drawn[:, 2]) <= shift * 20 + 1e-5).all()
    assert (np.abs(drawn[:, 5]) <= shift * 28 + 1e-5).all()


@given(st.floats(0, 180))
def test_rotations_keep_areas(rotation: float) -> None:
    for a, b, _, d, e, *_ in maps(View(size=(28, 20), rotation_deg=rotation)):
        assert np.isclose(a * e - b * d, 1, atol=1e-5)


def test_draws_depend_on_seed_and_epoch() -> None:
    view = View(size=(28, 20), rotation_deg=10)
    assert np.array_equal(maps(view), maps(view))
    assert not np.array_equal(maps(view), maps(view, epoch=1))
    assert not np.array_equal(maps(view), maps(view, seed=2))


def test_half_of_the_images_are_mirrored() -> None:
    drawn = flips(np.arange(10_000), seed=1, epoch=0)
    assert abs(drawn.mean() - 0.5) < 0.02
    assert not np.array_equal(drawn, flips(np.arange(10_000), seed=1, epoch=1))


POSITIONS = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=20)


@given(POSITIONS, st.integers(0, 2**31 - 1), st.integers(0, 1000), st.integers(1, 30))
def test_draw_depends_only_on_its_example(positions: list[int], seed: int, epoch: int, count: int) -> None:
    together = uniforms(np.array(positions), seed=seed, epoch=epoch, stream=CROP, count=count)
    assert together.shape == (len(positions), count)
    assert ((together >= 0) & (together < 1)).all()
    for position, row in zip(positions, together, strict=True):
        alone = uniforms(np.array([position]), seed=seed, epoch=epoch, stream=CROP, count=count)
        assert np.array_equal(alone[0], row)


def test_seed_epoch_and_stream_each_change_the_draws() -> None:
    base = uniforms(np.arange(8), seed=1, epoch=1, stream=CROP, count=2)
    assert not np.array_equal(base, uniforms(np.arange(8), seed=2, epoch=1, stream=CROP, count=2))
    assert not np.array_equal(base, uniforms(np.arange(8), seed=1, epoch=2, stream=CROP, count=2))
    assert not np.array_equal(base, uniforms(np.arange(8), seed=1, epoch=1, stream=FLIP, count=2))


def test_draws_are_even_and_those_of_neighbors_unrelated() -> None:
    drawn = uniforms(np.arange(20_000), seed=1, epoch=0, stream=CROP, count=3)
    counts, _ = np.histogram(drawn, bins=20, range=(0, 1))
    assert abs(counts / counts.mean() - 1).max() < 0.06, "four standard deviations"
    for one, other in ((drawn[:, 0], drawn[:, 1]), (drawn[:-1, 0], drawn[1:, 0]), (drawn[:-1, 2], drawn[1:, 0])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.03
