"""A network that replaces large ones: it has the same kinds of layers, and compiles in a second."""

from __future__ import annotations

from typing import Any

import keras

from payload.models.layers import weight_type
from payload.models.normalization import BatchNormalization


def small_network(image_shape: tuple[int, int, int], classes: int, *, dropout: float = 0.5) -> Any:
    """Build a network with a convolution, normalization and dropout, from images to logits."""
    layers: list[Any] = [keras.layers.Input(image_shape), keras.layers.Conv2D(2, 5, strides=4, name="convolution")]
    layers += [BatchNormalization(name="normal1"), keras.layers.Flatten(), keras.layers.Dropout(dropout)]
    layers += [keras.layers.Dense(16, name="dense"), BatchNormalization(name="normal2"), keras.layers.Dropout(dropout)]
    return keras.Sequential([*layers, keras.layers.Dense(classes, dtype=weight_type(), name="logits")], name="small")
