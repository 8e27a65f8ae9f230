from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from payload.data.records.resizing import DamagedImageError, resized_versions
from tests.payload.data.drawings import drawing, encoded


def opened(content: bytes) -> Any:
    return Image.open(io.BytesIO(content))


@given(st.integers(20, 90), st.integers(20, 90), st.integers(1, 100))
def test_the_shorter_side_becomes_the_one_asked_for_unless_that_would_enlarge(
    height: int, width: int, size: int
) -> None:
    (content,) = resized_versions(encoded(drawing(0, height=height, width=width, seed=1)), [size], quality=90)
    made = opened(content)
    assert min(made.size) == min(size, height, width)
    assert made.width / made.height == pytest.approx(width / height, rel=1.0 / min(made.size))


def test_what_needs_no_change_keeps_its_bytes() -> None:
    content = encoded(drawing(0, height=40, width=50, seed=1))
    assert resized_versions(content, [0, 40, 60], quality=90) == [content] * 3


def test_other_kinds_become_jpeg_in_colour() -> None:
    image = Image.fromarray(drawing(0, height=40, width=50, seed=1))
    for mode, kind in (("RGB", "PNG"), ("P", "PNG"), ("RGBA", "PNG"), ("CMYK", "JPEG")):
        content = io.BytesIO()
        image.convert(mode).save(content, kind)
        (made,) = resized_versions(content.getvalue(), [0], quality=90)
        assert (opened(made).format, opened(made).mode) == ("JPEG", "RGB")
    (grey,) = resized_versions(encoded(np.zeros((30, 30), np.uint8)), [10], quality=90)
    assert opened(grey).mode == "L"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no image",
        encoded(drawing(0, height=40, width=50, seed=1))[:-200],
        encoded(drawing(0, height=40, width=50, seed=1), "PNG")[:-200],
    ],
)
def test_damaged_images_are_told(content: bytes) -> None:
    with pytest.raises(DamagedImageError):
        resized_versions(content, [0], quality=90)
