"""Combine small pictures into one: filters, training images, and the thumbnails of TensorBoard's projector."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]

MIN_SIDE: Final = 32
"""Minimum side of a picture after enlargement, pixels. A filter of 3 x 3 would be too small to see."""
_WHITE: Final = 255
"""Gray level between pictures: white."""


def filter_pictures(kernel: npt.NDArray[Any]) -> Pixels:
    """Show a convolution's filters, [height, width, inputs, filters], as bytes [filters, height, width, 1 or 3].

    Zero is gray. White and black are plus and minus the filter's own largest absolute weight. Three inputs are shown as
    red, green and blue. For any other number of inputs, each pixel is their mean.
    """
    weights = np.moveaxis(np.asarray(kernel, np.float64), -1, 0)
    if weights.shape[-1] != 3:
        weights = weights.mean(axis=-1, keepdims=True)
    largest = np.abs(weights).max(axis=(1, 2, 3), keepdims=True)
    scaled = np.divide(weights, largest, out=np.zeros_like(weights), where=largest > 0)
    shown: Pixels = np.rint(127.5 + 127.5 * scaled).astype(np.uint8)
    return shown


def image_grid(pictures: Pixels, *, columns: int = 0, gap: int = 1) -> Pixels:
    """Arrange pictures [N, height, width, 1 or 3] in rows, left to right, with `gap` white pixels between and around.

    `columns`: 0 makes the grid about square. Returns [height, width, 1 or 3]. Unused places are white.
    """
    count, height, width, channels = pictures.shape
    across = columns or math.ceil(math.sqrt(count))
    down = math.ceil(count / across)
    sheet = np.full((down * (height + gap) + gap, across * (width + gap) + gap, channels), _WHITE, np.uint8)
    for place, picture in enumerate(pictures):
        row, column = divmod(place, across)
        top, left = gap + row * (height + gap), gap + column * (width + gap)
        sheet[top : top + height, left : left + width] = picture
    return sheet


def enlarged(pictures: Pixels, least_side: int = MIN_SIDE) -> Pixels:
    """Repeat each pixel of [N, height, width, channels] until the shorter side has at least `least_side` pixels."""
    times = math.ceil(least_side / min(pictures.shape[1:3]))
    return pictures.repeat(times, axis=1).repeat(times, axis=2) if times > 1 else pictures


def thumbnails(images: Pixels, side: int) -> Pixels:
    """Resize [N, height, width, 1 or 3] to [N, side, side, 1 or 3]. Shrinking averages pixels."""
    shown = [
        Image.fromarray(image.squeeze(-1) if image.shape[-1] == 1 else image).resize((side, side), Image.Resampling.BOX)
        for image in images
    ]
    return np.stack([np.asarray(image, np.uint8) for image in shown]).reshape(-1, side, side, images.shape[-1])
