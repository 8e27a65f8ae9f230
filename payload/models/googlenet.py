"""GoogLeNet: Szegedy et al. 2014, "Going Deeper with Convolutions", arXiv:1409.4842, table 1.

The two auxiliary classifiers are omitted, because they helped little and are not used after training. The local
response normalization, which has no weights, is omitted too. With 1000 classes the network has 6,998,552 weights:
5,973,552 in the convolutions, including biases, and 1,025,000 in the linear layer. Caffe's deployed `bvlc_googlenet`
has the same number. torchvision's `googlenet` has 6,624,904, because it uses 3 x 3 instead of 5 x 5 convolutions and
batch normalization.
"""

from __future__ import annotations

from typing import Any, Final

import keras

from payload.models.layers import classifier, convolution, standardized

MODULES: Final = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
"""Filters by module: 1 x 1; reduction before 3 x 3, and 3 x 3; reduction before 5 x 5, and 5 x 5; pool projection."""
HALVED_BEFORE: Final = ("3a", "4a", "5a")


def googlenet(image_shape: tuple[int | None, int | None, int], classes: int, *, dropout: float = 0.4) -> Any:
    """Build the network: float32 [B, height, width, channels], 0 to 1, to logits, float32 [B, classes].

    `dropout`: fraction of the features to drop before the last layer.
    """
    inputs = keras.layers.Input(image_shape)
    x = convolution(standardized(inputs), 64, 7, stride=2, padding=3, activation="relu", name="conv1")
    x = _halve(x, "pool1")
    x = convolution(x, 64, 1, activation="relu", name="conv2_reduce")
    x = convolution(x, 192, 3, padding=1, activation="relu", name="conv2")
    for name, filters in MODULES.items():
        if name in HALVED_BEFORE:
            x = _halve(x, f"pool_before_{name}")
        x = _module(x, filters, name)
    x = keras.layers.GlobalAveragePooling2D(name="pool5")(x)
    x = keras.layers.Dropout(dropout, name="dropout")(x)
    return keras.Model(inputs, classifier(x, classes, name="fc"), name="googlenet")


def _module(inputs: Any, filters: tuple[int, int, int, int, int, int], name: str) -> Any:
    """Apply an inception module: four parallel branches (1 x 1, 3 x 3, 5 x 5, max pooling), concatenated.

    `filters`: of 1 x 1, the reduction before 3 x 3, 3 x 3, the reduction before 5 x 5, 5 x 5, and after max pooling.
    """
    one, reduce_three, three, reduce_five, five, projection = filters
    branch1 = convolution(inputs, one, 1, activation="relu", name=f"{name}_1x1")
    branch3 = convolution(inputs, reduce_three, 1, activation="relu", name=f"{name}_3x3_reduce")
    branch3 = convolution(branch3, three, 3, padding=1, activation="relu", name=f"{name}_3x3")
    branch5 = convolution(inputs, reduce_five, 1, activation="relu", name=f"{name}_5x5_reduce")
    branch5 = convolution(branch5, five, 5, padding=2, activation="relu", name=f"{name}_5x5")
    pooled = keras.layers.MaxPooling2D(3, strides=1, padding="same", name=f"{name}_pool")(inputs)
    pooled = convolution(pooled, projection, 1, activation="relu", name=f"{name}_pool_proj")
    return keras.layers.Concatenate(name=f"{name}_concat")([branch1, branch3, branch5, pooled])


def _halve(inputs: Any, name: str) -> Any:
    """Halve the size with max pooling, rounding up as Caffe does."""
    return keras.layers.MaxPooling2D(3, strides=2, padding="same", name=name)(inputs)
