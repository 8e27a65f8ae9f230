"""A recurrent network for short sequences: bidirectional LSTM (Hochreiter and Schmidhuber 1997).

A sequence is a gray image with a row for each time step, like the speech frames of Graves and Schmidhuber (2005). Rows
of zeros after its end are masked. At 29 x 12 x 1 and 9 classes: 40,585 weights.
"""

from __future__ import annotations

import math
from typing import Any, Final

import keras

from payload.models.layers import classifier

UNITS: Final = 64
MEAN: Final = 0.47
STANDARD_DEVIATION: Final = 0.1
"""Mean and standard deviation of the training values of Japanese vowels, divided by 255 and rounded."""


def lstm(image_shape: tuple[int, int, int], classes: int, *, units: int = UNITS, dropout: float = 0.5) -> Any:
    """Build the network: float32 [B, steps, values, channels], 0 to 1, to logits, float32 [B, classes].

    `units`: units of each direction. `dropout`: fraction of their last outputs to drop.
    """
    steps, *values = image_shape
    inputs = keras.layers.Input(image_shape)
    x = keras.layers.Reshape((steps, math.prod(values)), name="steps")(inputs)
    x = keras.layers.Masking(0.0, name="end")(x)
    x = keras.layers.Rescaling(1 / STANDARD_DEVIATION, -MEAN / STANDARD_DEVIATION, name="normalize")(x)
    x = keras.layers.Bidirectional(keras.layers.LSTM(units, name="lstm"), name="lstm")(x)
    x = keras.layers.Dropout(dropout, name="dropout")(x)
    return keras.Model(inputs, classifier(x, classes, name="fc"), name="lstm")
