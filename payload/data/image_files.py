"""Read, crop and resize image files of any size and format, in the same way as test images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from payload.data.dataset import DataError
from payload.data.pipeline.augmentation import middle_boxes


def read_images(
    paths: Sequence[Path], *, size: tuple[int, int], channels: int, fraction: float = 1.0
) -> npt.NDArray[np.uint8]:
    """Read image files, crop their center, and resize it; return uint8 [N, *size, channels].

    Images are rotated as their EXIF data requires. `channels`: 1 for gray images, 3 for color. `fraction`: fraction of
    an image's shorter side to keep, as for test images. Raises DataError for the first file that cannot be read.
    """
    images = [_read(path, size, channels, fraction) for path in paths]
    return np.stack(images) if images else np.zeros((0, *size, channels), np.uint8)


def _read(path: Path, size: tuple[int, int], channels: int, fraction: float) -> npt.NDArray[np.uint8]:
    try:
        with Image.open(path) as opened:
            image = ImageOps.exif_transpose(opened).convert("L" if channels == 1 else "RGB")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a directory; pass image files") from None
    except UnidentifiedImageError:
        raise DataError(f"{path}: is not an image in a supported format; pass JPEG or PNG files") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}; check the file, or omit it"
        ) from error
    ((top, left, height, width),) = middle_boxes(np.array([[image.height, image.width]]), size, fraction=fraction)
    box = (int(left), int(top), int(left + width), int(top + height))
    shrunk = image.crop(box).resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return np.asarray(shrunk, np.uint8).reshape(*size, channels)
