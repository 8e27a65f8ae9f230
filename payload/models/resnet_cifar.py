"""The residual network for small images: He et al. 2015, "Deep Residual Learning", arXiv:1512.03385, section 4.2.

It has 20 layers for the 32 x 32 pixels of CIFAR-10: three stages of three blocks with two 3 x 3 convolutions each. If a
stage halves the size, the shortcut skips every other pixel and fills the new channels with zeros (option A), without
weights. With 10 classes, its layers add up to 269,722 weights, the paper's 0.27 million.
"""

from __future__ import annotations

from typing import Any, Final

import keras

from payload.models.layers import classifier, normalized_convolution, standardized

WIDTHS: Final = (16, 32, 64)
"""Number of filters by stage."""
BLOCKS: Final = 3
"""Number of blocks in each stage."""


def resnet20(image_shape: tuple[int | None, int | None, int], classes: int, *, zero_gamma: bool = True) -> Any:
    """Build the network: float32 [B, height, width, channels], 0 to 1, to logits, float32 [B, classes].

    `zero_gamma`: start each block as the identity (see `payload.models.resnet`).
    """
    inputs = keras.layers.Input(image_shape)
    x = normalized_convolution(standardized(inputs), WIDTHS[0], 3, padding=1, name="conv1")
    for stage, width in enumerate(WIDTHS, start=2):
        for block in range(1, BLOCKS + 1):
            stride = 2 if block == 1 and stage > 2 else 1
            x = _block(x, width, stride, name=f"conv{stage}_{block}", last_gamma="zeros" if zero_gamma else "ones")
    x = keras.layers.GlobalAveragePooling2D(name="pool5")(x)
    return keras.Model(inputs, classifier(x, classes, name="fc"), name="resnet20")


def _block(inputs: Any, width: int, stride: int, *, name: str, last_gamma: str) -> Any:
    """Apply two convolutions with `width` filters, and add the inputs.

    With a stride, the added inputs skip pixels and get channels of zeros. `last_gamma`: initial scale of the last
    normalization.
    """
    x = normalized_convolution(inputs, width, 3, stride=stride, padding=1, name=f"{name}_a")
    x = normalized_convolution(x, width, 3, padding=1, relu=False, gamma=last_gamma, name=f"{name}_b")
    shortcut = inputs
    if stride != 1:
        shortcut = keras.layers.MaxPooling2D(1, strides=stride, padding="same", name=f"{name}_every_other")(inputs)
        further = width - inputs.shape[-1]
        shortcut = keras.ops.pad(shortcut, [[0, 0], [0, 0], [0, 0], [0, further]])
    return keras.layers.ReLU(name=f"{name}_relu")(keras.layers.Add(name=f"{name}_add")([x, shortcut]))
