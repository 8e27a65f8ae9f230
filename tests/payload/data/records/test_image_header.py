from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from payload.data.records.image_header import JPEG, PNG, ImageHeader, read_header
from payload.data.records.tf_example import LazyBytes


def header_of(content: bytes) -> ImageHeader:
    return read_header(LazyBytes(lambda start, size: content[start : start + size], len(content)))


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from(["L", "RGB", "CMYK"]), st.booleans())
def test_size_of_jpeg_is_read(height: int, width: int, mode: str, progressive: bool) -> None:
    content = io.BytesIO()
    Image.new(mode, (width, height)).save(content, "JPEG", progressive=progressive, exif=bytes(9000))
    assert header_of(content.getvalue()) == ImageHeader(kind=JPEG, height=height, width=width)


def test_size_of_png_is_read() -> None:
    content = io.BytesIO()
    Image.fromarray(np.zeros((5, 7), np.uint8)).save(content, "PNG")
    assert header_of(content.getvalue()) == ImageHeader(kind=PNG, height=5, width=7)
    assert (JPEG, PNG) == (1, 2), "stored indexes contain these numbers"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "its image is neither JPEG nor PNG: it starts with nothing"),
        (b"GIF89a  ", "its image is neither JPEG nor PNG: it starts with 47 49 46 38 39 61 20 20"),
        (b"\xff\xd8\xff\xd9", "its image is a damaged JPEG: it has no size"),
        (b"\xff\xd8\xff\xda" + b"\xff\xc0\x00\x11\x08\x00\x10\x00\x10", "its image is a damaged JPEG: it has no size"),
        (b"\xff\xd8\x00\x00", "its image is a damaged JPEG: no marker at byte 2"),
        (b"\xff\xd8\xff\xe0\x00\x10", ".*expected 1 bytes at byte 20, but the data ends at byte 6"),
        (b"\xff\xd8\xff\xc0\x00\x11\x08\x00\x00\x00\x10", "its image has 0 x 16 pixels"),
    ],
)
def test_invalid_image_is_reported(content: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=f"^{fault}$"):
        header_of(content)


@given(st.binary(max_size=100))
def test_random_bytes_after_jpeg_start_are_rejected_or_give_a_size(noise: bytes) -> None:
    try:
        header = header_of(b"\xff\xd8" + noise)
    except ValueError:
        return
    assert header.height > 0


def frame(marker: int = 0xC0, height: int = 3, width: int = 5) -> bytes:
    """Return the segment of a JPEG that contains its size."""
    return b"\xff" + bytes([marker]) + b"\x00\x11\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big")


@pytest.mark.parametrize("marker", range(0xC0, 0xD0))
def test_size_is_read_from_every_kind_of_frame_but_not_tables(marker: int) -> None:
    is_table = marker in (0xC4, 0xC8, 0xCC)  # DHT, JPG and DAC
    content = b"\xff\xd8" + frame(marker, 7, 7).replace(b"\x00\x11", b"\x00\x07") + frame()
    assert header_of(content) == ImageHeader(kind=JPEG, height=3 if is_table else 7, width=5 if is_table else 7)


@pytest.mark.parametrize(
    "before",
    [
        b"\xff\xff\xff",  # padding
        *(bytes([0xFF, marker]) for marker in (0x01, *range(0xD0, 0xD8))),  # TEM and RST0 to RST7 have no length
        b"\xff\x02\x00\x02",  # a reserved marker has a length
        b"\xff\xe1" + (65_535).to_bytes(2, "big") + bytes(65_533),  # the longest
    ],
)
def test_segments_before_the_frame_are_skipped(before: bytes) -> None:
    assert header_of(b"\xff\xd8" + before + frame()) == ImageHeader(kind=JPEG, height=3, width=5)


def test_largest_sizes_are_read_as_they_are() -> None:
    assert header_of(b"\xff\xd8" + frame(height=65_535, width=65_534)).height == 65_535
    png = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + (1 << 31).to_bytes(4, "big") + (9).to_bytes(4, "big")
    assert len(png) == 24
    assert header_of(png) == ImageHeader(kind=PNG, height=9, width=1 << 31)
    with pytest.raises(ValueError, match="neither JPEG nor PNG"):
        header_of(png[:-1])


def test_jpeg_with_too_many_segments_is_rejected() -> None:
    assert header_of(b"\xff\xd8" + b"\xff\x01" * 9_999 + frame()).width == 5
    with pytest.raises(ValueError, match="it has no size"):
        header_of(b"\xff\xd8" + b"\xff\x01" * 10_000 + frame())
