"""Compute changes of images: the box to crop, and random mirroring, rotation, shift and zoom.

A random change depends only on seed, epoch and example, not on the order of calls. Each random number is a hash of its
coordinates (the finalizer of SplitMix64, Steele, Lea and Flood 2014, over a counter). A rank therefore computes only
the numbers for its own examples. Boxes are (top, left, height, width) in pixels.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from payload.data.dataset import View

CROP: Final = 2
FLIP: Final = 3
MOVE: Final = 4
"""Streams of random numbers, one for each kind of change, so that changes of one example are independent."""

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)


def uniforms(
    examples: npt.NDArray[np.integer], *, seed: int, epoch: int, stream: int, count: int
) -> npt.NDArray[np.float64]:
    """Return `count` random numbers for each example: float64 [examples, count], at least 0 and less than 1.

    They depend only on the example's number, the seed, the epoch and `stream`.
    """
    (key,) = np.random.SeedSequence([seed, epoch, stream]).generate_state(1, np.uint64)
    numbers = examples.astype(np.uint64)[:, np.newaxis] * np.uint64(count) + np.arange(1, count + 1, dtype=np.uint64)
    hashed = key + numbers * _STEP  # wraps modulo 2**64 on purpose
    hashed = (hashed ^ (hashed >> np.uint64(30))) * _FIRST
    hashed = (hashed ^ (hashed >> np.uint64(27))) * _SECOND
    hashed ^= hashed >> np.uint64(31)
    bits: npt.NDArray[np.uint64] = hashed >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


ATTEMPTS: Final = 10
"""Random boxes to try for an image before a box in the middle is used."""
MIN_RATIO: Final = 3 / 4
"""Minimum of a random box's width / height; the maximum is its inverse (Szegedy et al. 2014, arXiv:1409.4842)."""


def random_boxes(
    sizes: npt.NDArray[np.integer],
    examples: npt.NDArray[np.integer],
    *,
    smallest: float,
    seed: int,
    epoch: int,
) -> npt.NDArray[np.int32]:
    """Choose a random box in each image, int32 [N, 4]: top, left, height and width.

    `sizes`: [N, 2], height and width of the images. `examples`: their numbers, for `uniforms`. A box's area is uniform
    between the fraction `smallest` and all of the image's area. The logarithm of its aspect ratio is uniform too. The
    first of ten boxes that fits is placed at a random position. If none fits, the result is the largest centered box
    with an allowed aspect ratio.
    """
    drawn = uniforms(examples, seed=seed, epoch=epoch, stream=CROP, count=2 * ATTEMPTS + 2)
    heights, widths = sizes[:, :1].astype(np.float64), sizes[:, 1:].astype(np.float64)
    areas = heights * widths * (smallest + (1 - smallest) * drawn[:, :ATTEMPTS])
    ratios = np.exp(math.log(MIN_RATIO) * (1 - 2 * drawn[:, ATTEMPTS : 2 * ATTEMPTS]))
    tall, wide = np.rint(np.sqrt(areas / ratios)), np.rint(np.sqrt(areas * ratios))
    fits = (tall >= 1) & (wide >= 1) & (tall <= heights) & (wide <= widths)
    rows, first = np.arange(len(sizes)), fits.argmax(axis=1)
    height, width = heights[:, 0], widths[:, 0]
    middle_ratio = np.clip(width / height, MIN_RATIO, 1 / MIN_RATIO)
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
    """Return a centered box for each image, int32 [N, 4]: the largest box with the shape's ratio, times `fraction`.

    `shape`: height and width of the resized box. `fraction` refers to the image's shorter side, as if the image were
    resized first and then cropped to `shape`. A box may therefore exceed this fraction of the longer side, up to the
    whole image.
    """
    heights, widths = sizes[:, 0].astype(np.float64), sizes[:, 1].astype(np.float64)
    scale = fraction * np.minimum(heights, widths) / min(shape)
    scale = np.minimum(scale, np.minimum(heights / shape[0], widths / shape[1]))
    tall = np.clip(np.rint(scale * shape[0]), 1, heights)
    wide = np.clip(np.rint(scale * shape[1]), 1, widths)
    top, left = np.floor((heights - tall) / 2), np.floor((widths - wide) / 2)
    return np.stack([top, left, tall, wide], axis=1).astype(np.int32)


def flips(examples: npt.NDArray[np.integer], *, seed: int, epoch: int) -> npt.NDArray[np.bool_]:
    """Return whether to mirror the image of each example, bool [N]: True with probability 1/2.

    `examples`: their numbers, [N]. The choice depends only on number, seed and epoch.
    """
    return uniforms(examples, seed=seed, epoch=epoch, stream=FLIP, count=1)[:, 0] < 0.5


def transforms(
    boxes: npt.NDArray[np.integer],
    flipped: npt.NDArray[np.bool_],
    view: View,
    examples: npt.NDArray[np.integer],
    *,
    seed: int,
    epoch: int,
) -> npt.NDArray[np.float32]:
    """Compute the matrices that map a view's pixels to image pixels, with the view's random rotation, zoom and shift.

    Rotation and zoom are about a box's middle. `boxes`: [N, 4], top, left, height and width in image pixels. `flipped`:
    [N], whether to mirror the image. `examples`: numbers of the images. Returns float32 [N, 8], with rows (a, b, c, d,
    e, f, 0, 0) as in TensorFlow's ImageProjectiveTransformV3. The view's pixel (x, y) is taken from the image at
    (ax + by + c, dx + ey + f). Coordinates refer to the centers of pixels.
    """
    top, left, height, width = boxes.astype(np.float64).T
    angle, zoom, right, down = _moves(view, examples, seed=seed, epoch=epoch)
    cos, sin = np.cos(angle) / zoom, np.sin(angle) / zoom
    # From the view's pixel to a point of the box, relative to the box's middle, in image pixels.
    x_scale = width / view.size[1] * np.where(flipped, -1.0, 1.0)
    y_scale = height / view.size[0]
    x_start, y_start = -x_scale * (view.size[1] - 1) / 2, -y_scale * (view.size[0] - 1) / 2
    middle_x = left + (width - 1) / 2 + right * width
    middle_y = top + (height - 1) / 2 + down * height
    zero = np.zeros(len(boxes))
    rows = [
        cos * x_scale,
        -sin * y_scale,
        cos * x_start - sin * y_start + middle_x,
        sin * x_scale,
        cos * y_scale,
        sin * x_start + cos * y_start + middle_y,
        zero,
        zero,
    ]
    return np.stack(rows, axis=1).astype(np.float32)


def _moves(
    view: View, examples: npt.NDArray[np.integer], *, seed: int, epoch: int
) -> tuple[npt.NDArray[np.float64], ...]:
    """Choose each image's random angle (radians), zoom (1: none), and shifts right and down (fractions of the box)."""
    drawn = 2 * uniforms(examples, seed=seed, epoch=epoch, stream=MOVE, count=4).T - 1
    return (
        np.deg2rad(view.rotation_deg) * drawn[0],
        1 + view.zoom_fraction * drawn[1],
        view.shift_fraction * drawn[2],
        view.shift_fraction * drawn[3],
    )
