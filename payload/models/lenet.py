"""LeNet as in "Scalable Deep Learning Using MXNet" (Smola 2016), after LeCun et al. 1998 and Caffe.

It has two 5 x 5 convolutions with 20 and 50 filters and no padding, each followed by tanh and 2 x 2 max pooling, then
500 tanh units and a linear layer. At 28 x 28 x 1 and 10 classes: 431,080 weights.
"""

from __future__ import annotations

from typing import Any

import keras

from payload.models.layers import weight_type


def lenet(image_shape: tuple[int, int, int], classes: int) -> Any:
    """Build the network: float32 [B, height, width, channels], 0 to 1, to logits, float32 [B, classes].

    The last layer is linear. The loss applies the softmax and can thereby avoid overflow.
    """
    return keras.Sequential(
        [
            keras.layers.Input(image_shape),
            keras.layers.Conv2D(20, 5, activation="tanh", name="conv1"),
            keras.layers.MaxPooling2D(2, name="pool1"),
            keras.layers.Conv2D(50, 5, activation="tanh", name="conv2"),
            keras.layers.MaxPooling2D(2, name="pool2"),
            keras.layers.Flatten(name="flatten"),
            keras.layers.Dense(500, activation="tanh", name="fc1"),
            keras.layers.Dense(classes, dtype=weight_type(), name="fc2"),
        ],
        name="lenet",
    )
