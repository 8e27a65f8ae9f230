from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from payload.data.records.image_header import JPEG, PNG, ImageHeader, read_header
from payload.data.records.index import RECORD
from payload.data.records.lazy_bytes import LazyBytes


def header_of(content: bytes) -> ImageHeader:
    return read_header(LazyBytes(lambda start, size: content[start : start + size], len(content)))


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from(["L", "RGB", "CMYK"]), st.booleans())
def test_a_jpeg_tells_its_size(height: int, width: int, mode: str, progressive: bool) -> None:
    content = io.BytesIO()
    Image.new(mode, (width, height)).save(content, "JPEG", progressive=progressive, exif=bytes(9000))
    assert header_of(content.getvalue()) == ImageHeader(kind=JPEG, height=height, width=width)


def test_a_png_tells_its_size() -> None:
    content = io.BytesIO()
    Image.fromarray(np.zeros((5, 7), np.uint8)).save(content, "PNG")
    assert header_of(content.getvalue()) == ImageHeader(kind=PNG, height=5, width=7)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "neither JPEG nor PNG: it starts with nothing"),
        (b"GIF89a  ", "neither JPEG nor PNG: it starts with 47 49 46 38"),
        (b"\xff\xd8\xff\xd9", "it has no size"),
        (b"\xff\xd8\x00\x00", "no marker at byte 2"),
        (b"\xff\xd8\xff\xe0\x00\x10", "bytes 20 to 21 of 6"),
        (b"\xff\xd8\xff\xc0\x00\x11\x08\x00\x00\x00\x10", "0 x 16 pixels"),
    ],
)
def test_what_is_no_image_is_told(content: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        header_of(content)


@given(st.binary(max_size=100))
def test_noise_after_a_jpegs_first_bytes_ends(noise: bytes) -> None:
    try:
        header = header_of(b"\xff\xd8" + noise)
    except ValueError:
        return
    assert header.height > 0


def test_an_index_can_store_every_kind_and_none_is_the_one_of_a_damaged_image() -> None:
    stored = np.array([JPEG, PNG], RECORD["kind"])
    assert 0 not in stored and len(set(stored)) == 2
