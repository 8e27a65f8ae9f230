"""Random rotation, shift and zoom, drawn for each image and epoch, and so the same on any number of ranks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_STREAM = 1
"""Keeps these draws apart from those of the order of the same seed and epoch."""


def affine_transforms(
    examples: int,
    *,
    size: tuple[int, int],
    rotation_deg: float,
    shift_fraction: float,
    zoom_fraction: float,
    seed: int,
    epoch: int,
) -> npt.NDArray[np.float32]:
    """Draw one transform for each image of the data set.

    `size` is height and width in pixels. Returns float32 [examples, 8], rows (a, b, c, d, e, f, 0, 0) in the form of
    TensorFlow's ImageProjectiveTransformV3: the output's pixel (x, y) is taken from (ax + by + c, dx + ey + f).
    Rotation and zoom are about the image's centre.
    """
    draws = np.random.default_rng([seed, epoch, _STREAM]).uniform(-1, 1, (4, examples))
    angle = np.deg2rad(rotation_deg) * draws[0]
    zoom = 1 + zoom_fraction * draws[1]
    height, width = size
    cos, sin = np.cos(angle) / zoom, np.sin(angle) / zoom
    centre_x, centre_y = (width - 1) / 2, (height - 1) / 2
    x_offset = centre_x - cos * centre_x + sin * centre_y + shift_fraction * width * draws[2]
    y_offset = centre_y - sin * centre_x - cos * centre_y + shift_fraction * height * draws[3]
    zero = np.zeros(examples)
    return np.stack([cos, -sin, x_offset, sin, cos, y_offset, zero, zero], axis=1).astype(np.float32)
