"""The VGG-like network of "Benchmarking NVIDIA CUDA 9 and Amazon EC2 P3 Instances Using Fashion MNIST" (Poduska 2018).

It has nine 3 x 3 convolutions in four stages. The second and fourth stage halve the size. Two layers of 512 units
follow. Batch normalization and dropout are in between. At 28 x 28 x 1 and 10 classes, the layers listed in the article
add up to 8,454,954 trainable weights; it states no count. The fully connected layers depend on the image size.
"""

from __future__ import annotations

from typing import Any, Final

import keras

from payload.models.layers import classifier, convolution, maximum
from payload.models.normalization import BatchNormalization

MEAN: Final = 0.2860
STANDARD_DEVIATION: Final = 0.3530
"""Mean and standard deviation of Fashion-MNIST's training pixels, 0 to 1. The article names its first layer
`norm_input` but does not describe it. Such a layer standardizes pixels."""


def fashion_vgg(image_shape: tuple[int, int, int], classes: int, *, dropout: float = 0.5) -> Any:
    """Build the network: float32 [B, height, width, channels], 0 to 1, to logits, float32 [B, classes].

    `dropout`: fraction of units to drop after each layer of 512 units. Half of it is used after each of the first three
    stages.
    """
    inputs = keras.layers.Input(image_shape)
    x = keras.layers.Rescaling(1 / STANDARD_DEVIATION, -MEAN / STANDARD_DEVIATION, name="normalize")(inputs)
    x = _pair(x, 32, "conv1")
    x = BatchNormalization(momentum=0.9, name="conv1_bn")(x)
    x = keras.layers.Dropout(dropout / 2, name="dropout1")(x)
    x = _pair(x, 64, "conv2")
    x = maximum(x, size=2, name="pool2")
    x = keras.layers.Dropout(dropout / 2, name="dropout2")(x)
    x = _pair(x, 128, "conv3")
    x = BatchNormalization(momentum=0.9, name="conv3_bn")(x)
    x = keras.layers.Dropout(dropout / 2, name="dropout3")(x)
    x = _pair(x, 256, "conv4")
    x = convolution(x, 256, 3, padding=1, activation="relu", name="conv4_3")
    x = maximum(x, size=2, name="pool4")
    x = keras.layers.Flatten(name="flatten")(x)
    for name in ("fc1", "fc2"):
        x = keras.layers.Dense(512, activation="relu", kernel_initializer="he_normal", name=name)(x)
        x = BatchNormalization(momentum=0.9, name=f"{name}_bn")(x)
        x = keras.layers.Dropout(dropout, name=f"{name}_dropout")(x)
    return keras.Model(inputs, classifier(x, classes, name="fc3"), name="fashion_vgg")


def _pair(inputs: Any, filters: int, name: str) -> Any:
    x = convolution(inputs, filters, 3, padding=1, activation="relu", name=f"{name}_1")
    return convolution(x, filters, 3, padding=1, activation="relu", name=f"{name}_2")
