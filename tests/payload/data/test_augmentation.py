from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from payload.data.augmentation import affine_transforms

DEFAULTS: dict[str, Any] = {
    "size": (28, 20),
    "rotation_deg": 0.0,
    "shift_fraction": 0.0,
    "zoom_fraction": 0.0,
    "seed": 1,
    "epoch": 0,
}


def transforms(count: int = 50, **values: Any) -> npt.NDArray[np.float32]:
    return affine_transforms(count, **{**DEFAULTS, **values})


def test_without_augmentation_every_pixel_stays() -> None:
    assert np.allclose(transforms(3), [[1, 0, 0, 0, 1, 0, 0, 0]] * 3)


@given(st.floats(0, 180), st.floats(0, 0.5))
def test_rotation_and_zoom_keep_the_centre(rotation: float, zoom: float) -> None:
    for a, b, c, d, e, f, _, _ in transforms(rotation_deg=rotation, zoom_fraction=zoom):
        x, y = (20 - 1) / 2, (28 - 1) / 2
        assert np.allclose([a * x + b * y + c, d * x + e * y + f], [x, y], atol=1e-3)


@given(st.floats(0, 1))
def test_shifts_stay_within_their_part_of_the_image(shift: float) -> None:
    drawn = transforms(shift_fraction=shift)
    assert (np.abs(drawn[:, 2]) <= shift * 20 + 1e-5).all()
    assert (np.abs(drawn[:, 5]) <= shift * 28 + 1e-5).all()


@given(st.floats(0, 180))
def test_rotations_keep_areas(rotation: float) -> None:
    for a, b, _, d, e, _, _, _ in transforms(rotation_deg=rotation):
        assert np.isclose(a * e - b * d, 1, atol=1e-5)


def test_draws_depend_on_seed_and_epoch_alone() -> None:
    first = transforms(rotation_deg=10)
    assert np.array_equal(first, transforms(rotation_deg=10))
    assert not np.array_equal(first, transforms(rotation_deg=10, epoch=1))
    assert not np.array_equal(first, transforms(rotation_deg=10, seed=2))
