"""Boxes that images are cropped to: random ones in training, the middle in tests.

Boxes are (top, left, height, width) in pixels.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from payload.data.pipeline.random_numbers import CROP, uniforms

ATTEMPTS: Final = 10
"""Random boxes tried for an image before its middle is taken."""
LEAST_RATIO: Final = 3 / 4
"""Width over height of a random box, at least; at most the inverse (Szegedy et al. 2014, arXiv:1409.4842)."""


def random_boxes(
    sizes: npt.NDArray[np.integer],
    examples: npt.NDArray[np.integer],
    *,
    smallest: float,
    seed: int,
    epoch: int,
) -> npt.NDArray[np.int32]:
    """Draw one box within each image. `sizes`: [N, 2], height and width; returns int32 [N, 4].

    A box's area is uniform from `smallest` of the image's to all of it, the logarithm of its ratio uniform too. Of ten
    such boxes the first that fits is placed anywhere; where none fits it is the largest in the middle that keeps the
    rule of ratios.
    """
    drawn = uniforms(examples, seed=seed, epoch=epoch, stream=CROP, count=2 * ATTEMPTS + 2)
    heights, widths = sizes[:, :1].astype(np.float64), sizes[:, 1:].astype(np.float64)
    areas = heights * widths * (smallest + (1 - smallest) * drawn[:, :ATTEMPTS])
    ratios = np.exp(math.log(LEAST_RATIO) * (1 - 2 * drawn[:, ATTEMPTS : 2 * ATTEMPTS]))
    tall, wide = np.rint(np.sqrt(areas / ratios)), np.rint(np.sqrt(areas * ratios))
    fits = (tall >= 1) & (wide >= 1) & (tall <= heights) & (wide <= widths)
    rows, first = np.arange(len(sizes)), fits.argmax(axis=1)
    height, width = heights[:, 0], widths[:, 0]
    middle_ratio = np.clip(width / height, LEAST_RATIO, 1 / LEAST_RATIO)
    found = np.any(fits, axis=1)
    box_height = np.where(found, tall[rows, first], np.minimum(height, np.rint(width / middle_ratio)))
    box_width = np.where(found, wide[rows, first], np.minimum(width, np.rint(height * middle_ratio)))
    places = np.where(found[:, np.newaxis], drawn[:, -2:], 0.5)
    top = np.floor(places[:, 0] * (height - box_height + 1))
    left = np.floor(places[:, 1] * (width - box_width + 1))
    return np.stack([top, left, box_height, box_width], axis=1).astype(np.int32)


def middle_boxes(
    sizes: npt.NDArray[np.integer], shape: tuple[int, int], *, fraction: float = 1.0
) -> npt.NDArray[np.int32]:
    """Return the middle of each image, int32 [N, 4]: the largest box of the shape's ratio, times `fraction`.

    `shape`: height and width of what the box becomes. Where the fraction leaves room, a box may be wider than that
    fraction of its own image: sizes are of the shorter side, as if the image were enlarged and then cropped to `shape`.
    """
    heights, widths = sizes[:, 0].astype(np.float64), sizes[:, 1].astype(np.float64)
    scale = fraction * np.minimum(heights, widths) / min(shape)
    scale = np.minimum(scale, np.minimum(heights / shape[0], widths / shape[1]))
    tall = np.clip(np.rint(scale * shape[0]), 1, heights)
    wide = np.clip(np.rint(scale * shape[1]), 1, widths)
    top, left = np.floor((heights - tall) / 2), np.floor((widths - wide) / 2)
    return np.stack([top, left, tall, wide], axis=1).astype(np.int32)
