"""AlexNet with one tower: Krizhevsky 2014, "One weird trick", arXiv:1404.5997, section 5.

The network of 2012 had two towers, one on each GPU. This one has 64, 192, 384, 384 and 256 filters and no groups, like
`alexnet` of tf_cnn_benchmarks. At 224 x 224 x 3 and 1000 classes, its layers add up to 61,838,248 weights.
torchvision's `alexnet` has 256 filters in the fourth layer and 61,100,840 weights.
Like both, this network omits the local response normalization of 2012. The fully connected layers depend on the image
size.
"""

from __future__ import annotations

from typing import Any, Final

import keras

from payload.models.layers import classifier, convolution, dense, maximum, standardized

FILTERS: Final = (64, 192, 384, 384, 256)


def alexnet(image_shape: tuple[int, int, int], classes: int, *, units: int = 4096, dropout: float = 0.5) -> Any:
    """Build the network: float32 [B, height, width, channels], 0 to 1, to logits, float32 [B, classes].

    `units`: number of units in each of the two layers before the last one. `dropout`: fraction of these units to drop.
    """
    inputs = keras.layers.Input(image_shape)
    x = convolution(standardized(inputs), FILTERS[0], 11, stride=4, padding=2, activation="relu", name="conv1")
    x = maximum(x, name="pool1")
    x = convolution(x, FILTERS[1], 5, padding=2, activation="relu", name="conv2")
    x = maximum(x, name="pool2")
    for number in (3, 4, 5):
        x = convolution(x, FILTERS[number - 1], 3, padding=1, activation="relu", name=f"conv{number}")
    x = maximum(x, name="pool5")
    x = keras.layers.Flatten(name="flatten")(x)
    x = dense(x, units, dropout=dropout, name="fc6")
    x = dense(x, units, dropout=dropout, name="fc7")
    return keras.Model(inputs, classifier(x, classes, name="fc8"), name="alexnet")
