from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from payload.training.reporting.confusion import Confusion
from payload.training.reporting.confusion_picture import colours, draw

WHITE, DARKEST = (255, 255, 255), (8, 48, 107)


def picture(counts: Any, labels: tuple[str, ...] = ()) -> Image.Image:
    array = np.asarray(counts, np.int64)
    names = labels or tuple(map(str, range(len(array))))
    return Image.open(io.BytesIO(draw(Confusion(labels=names, counts=array))))


def pixels(image: Image.Image, colour: tuple[int, int, int]) -> int:
    return int((np.asarray(image) == colour).all(axis=-1).sum())


def test_colours_go_from_white_to_dark_in_even_steps_of_the_root() -> None:
    assert colours(np.array([0, 1 / 16, 1 / 4, 1])).tolist() == [
        [255] * 3,
        [198, 219, 239],
        [107, 174, 214],
        [8, 48, 107],
    ]
    brightness = colours(np.linspace(0, 1, 50)).sum(axis=-1, dtype=int)
    assert (np.diff(brightness) < 0).all()


def test_small_cells_are_seen_however_small_their_share_and_zero_stays_white() -> None:
    seen = colours(np.array([0, 0.001, 1]), floor=0.3)
    assert seen[0].tolist() == [255] * 3
    assert seen[1].sum() < 220 * 3
    assert seen[2].tolist() == list(DARKEST)


def test_what_is_always_right_is_a_dark_diagonal_with_numbers() -> None:
    image = picture(np.eye(3) * 9)
    assert pixels(image, DARKEST) > 3 * 60 * 60 * 0.9
    assert pixels(image, DARKEST) < 4 * 64 * 64


@pytest.mark.parametrize(("classes", "widest"), [(1, 700), (2, 700), (10, 1000), (30, 1600), (120, 1500), (1000, 1300)])
def test_any_number_of_classes_makes_a_picture_of_a_sensible_size(classes: int, widest: int) -> None:
    image = picture(np.eye(classes) * 5, tuple(f"class {number}" for number in range(classes)))
    assert max(image.size) <= widest
    assert image.mode == "RGB"


def test_counts_of_many_digits_and_long_names_stay_inside() -> None:
    names = ("a name that is much longer than anyone would want to read", "b")
    image = picture([[123_456_789, 1], [0, 0]], names)
    border = np.concatenate([np.asarray(image)[:, -2:].reshape(-1, 3), np.asarray(image)[-2:].reshape(-1, 3)])
    assert (border == 255).all(), "nothing is cut off at the edges"
