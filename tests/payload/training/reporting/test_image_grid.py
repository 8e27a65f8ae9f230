from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from payload.training.reporting.image_grid import enlarged, filter_pictures, image_grid, thumbnails


def test_filter_is_gray_at_zero_white_at_its_largest_weight_and_black_at_its_opposite() -> None:
    kernel = np.zeros((1, 3, 1, 2))
    kernel[0, :, 0, 0] = -0.5, 0, 0.5
    shown = filter_pictures(kernel)
    assert shown.shape == (2, 1, 3, 1)
    assert shown[0, 0, :, 0].tolist() == [0, 128, 255]
    assert set(shown[1].flatten().tolist()) == {128}, "a filter of zeros is gray, and no division by zero"


def test_filters_of_three_inputs_are_colored_and_those_of_others_are_their_mean() -> None:
    colored = np.zeros((1, 1, 3, 1))
    colored[..., 0, 0] = 1
    assert filter_pictures(colored)[0, 0, 0].tolist() == [255, 128, 128]
    assert filter_pictures(np.ones((2, 2, 12, 5))).shape == (5, 2, 2, 1)


@given(st.integers(1, 40), st.integers(0, 9), st.integers(0, 3))
def test_every_picture_is_in_the_mosaic_at_its_place(count: int, columns: int, gap: int) -> None:
    pictures = np.arange(count, dtype=np.uint8)[:, None, None, None].repeat(2, axis=1).repeat(3, axis=2)
    sheet = image_grid(pictures, columns=columns, gap=gap)
    across = columns or int(np.ceil(np.sqrt(count)))
    assert sheet.shape[1] == across * (3 + gap) + gap
    for number in range(count):
        row, column = divmod(number, across)
        top, left = gap + row * (2 + gap), gap + column * (3 + gap)
        assert (sheet[top : top + 2, left : left + 3] == number).all()


def test_small_pictures_are_enlarged_by_whole_pixels_and_large_ones_left() -> None:
    small = np.arange(4, dtype=np.uint8).reshape(1, 2, 2, 1)
    assert enlarged(small, 5)[0, :, :, 0].tolist() == np.kron([[0, 1], [2, 3]], np.ones((3, 3))).tolist()
    large = np.zeros((1, 32, 40, 3), np.uint8)
    assert enlarged(large) is large


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 255))
def test_thumbnail_of_one_color_has_that_color(size: int, side: int, color: int) -> None:
    images = np.full((2, size, size, 3), color, np.uint8)
    assert (thumbnails(images, side) == color).all()


def test_thumbnail_averages_pixels_in_place() -> None:
    image = np.zeros((1, 4, 4, 1), np.uint8)
    image[0, :2, :2] = 200
    image[0, 0, 3] = 40
    assert thumbnails(image, 2)[0, :, :, 0].tolist() == [[200, 10], [0, 0]]
