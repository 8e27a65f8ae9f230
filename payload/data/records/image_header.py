"""Read the format and size of an encoded image from its first bytes.

The index of record files reads the header of every image (1.3 million for ImageNet) over a shared file system. For an
image of 105 kB with 20 kB of EXIF, this takes 6 us and fetches 8 kB. Pillow takes 170 us and imagesize 100 us, and both
fetch the EXIF. imagesize does not report what is wrong with a damaged image.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Final

from payload.data.records.tf_example import LazyBytes

JPEG: Final = 1
PNG: Final = 2
_PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_STANDALONE: Final = frozenset([0x01, *range(0xD0, 0xD8)])
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_MAX_SEGMENTS: Final = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageHeader:
    """Format and size of an encoded image."""

    kind: int
    """The constant JPEG or PNG."""
    height: int
    width: int


def read_header(data: LazyBytes) -> ImageHeader:
    """Read the format and size of an image. Raises ValueError if it is damaged or neither JPEG nor PNG."""
    if len(data) >= 24 and data.part(0, 8) == _PNG_SIGNATURE:
        width, height = struct.unpack(">II", data.part(16, 8))
        return _checked(PNG, height, width)
    if len(data) < 4 or data.part(0, 2) != b"\xff\xd8":
        start = data.part(0, min(8, len(data))).hex(" ")
        raise ValueError(f"its image is neither JPEG nor PNG: it starts with {start or 'nothing'}")
    place = 2
    for _ in range(_MAX_SEGMENTS):
        if data.part(place, 1) != b"\xff":
            raise ValueError(f"its image is a damaged JPEG: no marker at byte {place}")
        marker = data.part(place + 1, 1)[0]
        if marker == 0xFF:  # a byte of padding before the marker
            place += 1
            continue
        place += 2
        if marker in _STANDALONE:
            continue
        if marker in _FRAMES:
            height, width = struct.unpack(">HH", data.part(place + 3, 4))
            return _checked(JPEG, height, width)
        if marker in (0xD9, 0xDA):
            break
        place += int(struct.unpack(">H", data.part(place, 2))[0])
    raise ValueError("its image is a damaged JPEG: it has no size")


def _checked(kind: int, height: int, width: int) -> ImageHeader:
    if not height or not width:
        raise ValueError(f"its image has {height} x {width} pixels")
    return ImageHeader(kind=kind, height=height, width=width)
