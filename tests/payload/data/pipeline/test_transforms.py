from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from payload.data.pipeline.transforms import flips, transforms
from payload.data.types import View

WHOLE = np.array([[0, 0, 28, 20]])


def maps(view: View, box: npt.NDArray[np.int64] = WHOLE, *, mirrored: bool = False, **values: Any) -> npt.NDArray[Any]:
    given = {"seed": 1, "epoch": 0, **values}
    return transforms(np.tile(box, (50, 1)), np.full(50, mirrored), view, np.arange(50), **given)


def source(row: npt.NDArray[Any], x: float, y: float) -> tuple[float, float]:
    a, b, c, d, e, f = row[:6]
    return a * x + b * y + c, d * x + e * y + f


def test_a_view_of_the_same_size_leaves_every_pixel() -> None:
    assert np.allclose(maps(View(size=(28, 20))), [[1, 0, 0, 0, 1, 0, 0, 0]] * 50)


def test_a_mirrored_image_starts_at_its_right_edge() -> None:
    row = maps(View(size=(28, 20)), mirrored=True)[0]
    assert np.allclose(source(row, 0, 3), (19, 3))
    assert np.allclose(source(row, 19, 3), (0, 3))


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 19), st.integers(1, 11))
def test_the_edges_of_a_box_become_those_of_the_view(top: int, left: int, height: int, width: int) -> None:
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
