"""The images that a run was surest about and wrong, from its mistakes.json."""

from __future__ import annotations

import base64
import binascii
import struct
from typing import Any, Final

from cluster.report.model import MistakenImage
from cluster.report.run_files import Document, document, number
from cluster.report.wording import plain

MOST_IMAGES: Final = 24
MOST_BYTES: Final = 32 << 10
"""Of one image; those that a run writes have 8 kB at most."""
MOST_PIXELS: Final = 256
"""Of one side."""
_HEAD: Final = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
"""With which each PNG begins; width and height follow."""


def mistakes_of(found: Document | None) -> tuple[MistakenImage, ...]:
    """Return the images of a document, those left out that are no small PNG."""
    images = (found or {}).get("images")
    if not isinstance(images, list):
        return ()
    return tuple(image for each in images[:MOST_IMAGES] if (image := _image(document(each))) is not None)


def _image(values: Document) -> MistakenImage | None:
    confidence, png = number(values.get("confidence")), _small_png(values.get("png"))
    if confidence is None or not 0 <= confidence <= 1 or png is None:
        return None
    return MistakenImage(
        truth=plain(str(values.get("class"))),
        recognised=plain(str(values.get("recognised_as"))),
        confidence=confidence,
        png_base64=base64.b64encode(png).decode(),
    )


def _small_png(text: Any) -> bytes | None:
    """Return the bytes of a PNG of a few pixels, None for anything else."""
    if not isinstance(text, str) or len(text) > 2 * MOST_BYTES:
        return None
    try:
        png = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(png) > MOST_BYTES or not png.startswith(_HEAD) or len(png) < len(_HEAD) + 8:
        return None
    width, height = struct.unpack_from(">II", png, len(_HEAD))
    return png if 0 < width <= MOST_PIXELS and 0 < height <= MOST_PIXELS else None
