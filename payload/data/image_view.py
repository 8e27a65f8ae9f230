"""Our custom TensorFlow op, which takes a box of an image to a view's size, mirrored or not, in bytes."""

from __future__ import annotations

import functools
import sys
from typing import Any

import tensorflow as tf

from payload import custom_op
from payload.data.records import CHANNELS


def load() -> None:
    """Load the operation. Raises CustomOpError where it is not installed, or does not load."""
    _library()


def image_view(image: Any, box: Any, size: tuple[int, int], *, mirrored: Any) -> Any:
    """Return a box of an image, mirrored if it is to be, as uint8 [*size, 3]: bilinear, without antialiasing.

    `image`: uint8 [height, width, 3]. `box`: int32 [4], top, left, height and width within the image. `mirrored`: a
    Boolean, or a tensor of one. Raises as `load`.
    """
    height, width = size
    view = _library().deepcdk_image_view(image=image, box=box, mirrored=mirrored, height=height, width=width)
    view.set_shape([height, width, CHANNELS])
    return view


@functools.cache
def _library() -> Any:
    place = custom_op.check_installed()
    try:
        return tf.load_op_library(str(place))
    except tf.errors.OpError as error:
        raise custom_op.CustomOpError(
            f"{place} does not load ({error.message}); remove it and build it anew: "
            f"{sys.executable} -m payload.custom_op install"
        ) from None
