"""Residual networks of bottleneck blocks: He et al. 2015, "Deep Residual Learning", arXiv:1512.03385, table 1.

This is version 1.5: if a block halves the size, its 3 x 3 convolution has the stride. In the original, the first 1 x 1
convolution has it and discards three quarters of its inputs. The number of weights is the same: with 1000 classes,
25,557,032 for ResNet-50 and 60,192,808 for ResNet-152, as in torchvision (`resnet50`, `resnet152`).
"""

from __future__ import annotations

from typing import Any, Final

import keras

from payload.models.layers import classifier, convolution, maximum, normalized_convolution, standardized
from payload.models.normalization import BatchNormalization

WIDTHS: Final = (64, 128, 256, 512)
"""Filters of the 3 x 3 convolutions by stage. A block's output has EXPANSION times as many."""
EXPANSION: Final = 4


def resnet50(image_shape: tuple[int | None, int | None, int], classes: int, *, zero_gamma: bool = True) -> Any:
    """Build ResNet-50: float32 [B, height, width, channels], 0 to 1, to logits, float32 [B, classes].

    `zero_gamma`: start each block as the identity, with a last scale of zero.
    """
    return _resnet("resnet50", (3, 4, 6, 3), image_shape, classes, zero_gamma)


def resnet152(image_shape: tuple[int | None, int | None, int], classes: int, *, zero_gamma: bool = True) -> Any:
    """Build ResNet-152: float32 [B, height, width, channels], 0 to 1, to logits, float32 [B, classes].

    `zero_gamma`: start each block as the identity, with a last scale of zero.
    """
    return _resnet("resnet152", (3, 8, 36, 3), image_shape, classes, zero_gamma)


def _resnet(
    name: str, blocks: tuple[int, ...], image_shape: tuple[int | None, int | None, int], classes: int, zero_gamma: bool
) -> Any:
    """Build a network. `blocks`: number of blocks in each stage.

    `zero_gamma`: start each block as the identity, with a last scale of zero. This makes large batches trainable (Goyal
    et al. 2017, arXiv:1706.02677, section 5.1).
    """
    inputs = keras.layers.Input(image_shape)
    x = normalized_convolution(standardized(inputs), 64, 7, stride=2, padding=3, name="conv1")
    x = maximum(x, padding=1, name="pool1")
    for stage, (width, count) in enumerate(zip(WIDTHS, blocks, strict=True), start=2):
        for block in range(1, count + 1):
            stride = 2 if block == 1 and stage > 2 else 1
            x = _bottleneck(x, width, stride, name=f"conv{stage}_{block}", last_gamma="zeros" if zero_gamma else "ones")
    x = keras.layers.GlobalAveragePooling2D(name="pool5")(x)
    return keras.Model(inputs, classifier(x, classes, name="fc"), name=name)


def _bottleneck(inputs: Any, width: int, stride: int, *, name: str, last_gamma: str) -> Any:
    """Apply three convolutions and add the inputs. If the shape changes, the inputs are projected first.

    The first two convolutions have `width` filters, the last EXPANSION times as many. `last_gamma`: initial scale of
    the last normalization.
    """
    x = normalized_convolution(inputs, width, 1, name=f"{name}_a")
    x = normalized_convolution(x, width, 3, stride=stride, padding=1, name=f"{name}_b")
    x = normalized_convolution(x, width * EXPANSION, 1, relu=False, gamma=last_gamma, name=f"{name}_c")
    shortcut = inputs
    if stride != 1 or inputs.shape[-1] != width * EXPANSION:
        shortcut = convolution(inputs, width * EXPANSION, 1, stride=stride, use_bias=False, name=f"{name}_shortcut")
        shortcut = BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"{name}_shortcut_bn")(shortcut)
    return keras.layers.ReLU(name=f"{name}_relu")(keras.layers.Add(name=f"{name}_add")([x, shortcut]))
