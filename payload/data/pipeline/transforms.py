"""Crop, mirror, rotation, shift and zoom of an image as one affine map, so that it is resampled once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from payload.data.pipeline.random_numbers import FLIP, MOVE, uniforms
from payload.data.types import View


def flips(examples: npt.NDArray[np.integer], *, seed: int, epoch: int) -> npt.NDArray[np.bool_]:
    """Return at random whether each image is mirrored, one in two."""
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
    """Map a view's pixels to those of the images from which they are taken; rotation and zoom are about a box's middle.

    `boxes`: [N, 4], top, left, height and width in pixels of the image. Returns float32 [N, 8], rows (a, b, c, d, e, f,
    0, 0) in the form of TensorFlow's ImageProjectiveTransformV3: the view's pixel (x, y), of which each is a point at
    its middle, is taken from (ax + by + c, dx + ey + f).
    """
    top, left, height, width = boxes.astype(np.float64).T
    angle, zoom, right, down = _moves(view, examples, seed=seed, epoch=epoch)
    cos, sin = np.cos(angle) / zoom, np.sin(angle) / zoom
    # From the view's pixel to a point of the box, measured from the box's middle, in pixels of the image.
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
    """Return angle (radians), zoom (1: none), and shifts right and down (parts of the box) of each image."""
    drawn = 2 * uniforms(examples, seed=seed, epoch=epoch, stream=MOVE, count=4).T - 1
    return (
        np.deg2rad(view.rotation_deg) * drawn[0],
        1 + view.zoom_fraction * drawn[1],
        view.shift_fraction * drawn[2],
        view.shift_fraction * drawn[3],
    )
