"""VGG-16: Simonyan and Zisserman 2014, "Very Deep Convolutional Networks", arXiv:1409.1556, table 1, column D.

At 224 x 224 x 3 and 1000 classes it has 138,357,544 weights, like torchvision's `vgg16` (table 2: 138 million). The
fully connected layers depend on the image size, and with them the number of weights.
"""

from __future__ import annotations

from typing import Any, Final

import keras

from payload.models.layers import classifier, convolution, dense, maximum, standardized

STAGES: Final = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Filters and number of 3 x 3 convolutions by stage. Max pooling halves the size after each stage."""


def vgg16(image_shape: tuple[int, int, int], classes: int, *, units: int = 4096, dropout: float = 0.5) -> Any:
    """Build the network: float32 [B, height, width, channels], 0 to 1, to logits, float32 [B, classes].

    `units`: number of units in each of the two layers before the last one. `dropout`: fraction of these units to drop.
    The paper initializes deep networks from trained shallow ones. With the initial weights of He et al. 2015 this is
    not necessary.
    """
    inputs = keras.layers.Input(image_shape)
    x = standardized(inputs)
    for stage, (filters, count) in enumerate(STAGES, start=1):
        for number in range(1, count + 1):
            x = convolution(x, filters, 3, padding=1, activation="relu", name=f"conv{stage}_{number}")
        x = maximum(x, size=2, name=f"pool{stage}")
    x = keras.layers.Flatten(name="flatten")(x)
    x = dense(x, units, dropout=dropout, name="fc6")
    x = dense(x, units, dropout=dropout, name="fc7")
    return keras.Model(inputs, classifier(x, classes, name="fc8"), name="vgg16")
