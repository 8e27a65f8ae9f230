"""Images as they go into record files: JPEG in colour or grey, in several sizes. Pillow decodes and resizes.

Pillow's filters use all pixels that fall into one, its errors name what is wrong with a file, and it imports at once,
where TensorFlow takes each worker seconds.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final

from PIL import Image, UnidentifiedImageError

ORIGINAL: Final = 0
"""Stands for the size in which an image came."""
LARGEST_PIXELS: Final = 1 << 28
"""An image of more is an error: it would take gigabytes of memory."""


class DamagedImageError(ValueError):
    """Report bytes that cannot be decoded as an image."""


def resized_versions(content: bytes, sizes: Sequence[int], *, quality: int) -> list[bytes]:
    """Return the image as JPEG with a shorter side of each size.

    It is never enlarged. Where nothing changes, the bytes stay as they are. The image is decoded in any case, so that
    damage is found here. Raises DamagedImageError.
    """
    try:
        image: Image.Image = Image.open(io.BytesIO(content), formats=("JPEG", "PNG"))
        if image.width * image.height > LARGEST_PIXELS:
            raise DamagedImageError(f"{image.width} x {image.height} pixels")
        unchanged = image.format == "JPEG" and image.mode in ("RGB", "L")
        image.load()
    except (OSError, SyntaxError, ValueError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise DamagedImageError(str(error)) from error
    if image.mode not in ("RGB", "L"):
        image = image.convert("RGB")  # CMYK, palettes, transparency
    return [_version(image, content if unchanged else None, size, quality) for size in sizes]


def _version(image: Image.Image, content: bytes | None, size: int, quality: int) -> bytes:
    width, height = image.size
    if size and min(width, height) > size:
        scale = size / min(width, height)
        image = image.resize((round(width * scale), round(height * scale)), Image.Resampling.LANCZOS)
    elif content is not None:
        return content
    encoded = io.BytesIO()
    image.save(encoded, "JPEG", quality=quality)
    return encoded.getvalue()
