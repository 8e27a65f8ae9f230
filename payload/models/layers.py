"""Layers shared by several networks. Images are channels last: float32 [B, height, width, channels].

Padding is given in pixels and is the same on each side, as in the papers. With a stride of two and an even size,
Keras's "same" would pad only one side. This would shift features by half a pixel from the published networks.
"""

from __future__ import annotations

from typing import Any, Final

import keras

from payload.models.normalization import BatchNormalization

MEANS: Final = (0.485, 0.456, 0.406)
DEVIATIONS: Final = (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's training images by channel (RGB, 0 to 1), from torchvision."""


def standardized(inputs: Any) -> Any:
    """Standardize images, 0 to 1, with ImageNet's mean and standard deviation by channel, as in published runs.

    Images without three channels use the averages over the channels.
    """
    channels = inputs.shape[-1]
    means, deviations = MEANS, DEVIATIONS
    if channels != len(MEANS):
        means, deviations = ((sum(values) / len(values),) * channels for values in (MEANS, DEVIATIONS))
    scale = [1 / deviation for deviation in deviations]
    offset = [-mean / deviation for mean, deviation in zip(means, deviations, strict=True)]
    return keras.layers.Rescaling(scale, offset, name="standardize")(inputs)


def convolution(
    inputs: Any,
    filters: int,
    size: int | tuple[int, int],
    *,
    name: str,
    stride: int = 1,
    padding: int | tuple[int, int] = 0,
    use_bias: bool = True,
    activation: str | None = None,
) -> Any:
    """Apply a convolution. Initial weights follow He et al. 2015.

    `size`, `padding`: one number for both directions, or (rows, columns). `padding`: pixels of zeros on each side.
    """
    rows, columns = _pair(padding)
    height, width = _pair(size)
    # If "same" pads the same pixels, TensorFlow does it within the convolution instead of copying the images.
    as_same = stride == 1 and (height, width) == (2 * rows + 1, 2 * columns + 1)
    if (rows or columns) and not as_same:
        inputs = keras.layers.ZeroPadding2D((rows, columns), name=f"{name}_pad")(inputs)
    return keras.layers.Conv2D(
        filters,
        (height, width),
        strides=stride,
        padding="same" if as_same else "valid",
        use_bias=use_bias,
        activation=activation,
        kernel_initializer="he_normal",
        name=name,
    )(inputs)


def normalized_convolution(
    inputs: Any,
    filters: int,
    size: int | tuple[int, int],
    *,
    name: str,
    stride: int = 1,
    padding: int | tuple[int, int] = 0,
    use_bias: bool = False,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    relu: bool = True,
    gamma: str = "ones",
) -> Any:
    """Apply a convolution, batch normalization, and ReLU if `relu`.

    `momentum`: decay of the moving averages. `gamma`: initial value of the scale, "ones" or "zeros".
    """
    outputs = convolution(inputs, filters, size, name=name, stride=stride, padding=padding, use_bias=use_bias)
    outputs = BatchNormalization(momentum=momentum, epsilon=epsilon, gamma_initializer=gamma, name=f"{name}_bn")(
        outputs
    )
    return keras.layers.ReLU(name=f"{name}_relu")(outputs) if relu else outputs


def maximum(inputs: Any, *, name: str, size: int = 3, stride: int = 2, padding: int = 0) -> Any:
    """Apply max pooling.

    `padding`: pixels of zeros on each side. They affect the result only if all inputs in a window are negative.
    """
    if padding:
        inputs = keras.layers.ZeroPadding2D(padding, name=f"{name}_pad")(inputs)
    return keras.layers.MaxPooling2D(size, strides=stride, name=name)(inputs)


def dense(inputs: Any, units: int, *, name: str, dropout: float) -> Any:
    """Apply a fully connected layer, ReLU and dropout. `dropout`: fraction of the units to drop."""
    outputs = keras.layers.Dense(units, activation="relu", kernel_initializer="he_normal", name=name)(inputs)
    return keras.layers.Dropout(dropout, name=f"{name}_dropout")(outputs)


def classifier(inputs: Any, classes: int, *, name: str) -> Any:
    """Map features, float32 [B, features], to logits. The loss applies the softmax.

    Initial weights are small, so that all classes are about equally likely. With mixed precision, logits have the
    weights' type, because the loss of float16 logits overflows.
    """
    start = keras.initializers.RandomNormal(stddev=0.01)
    return keras.layers.Dense(classes, kernel_initializer=start, dtype=weight_type(), name=name)(inputs)


def weight_type() -> str:
    """Return the name of the weights' type for layers created now, such as "float32", also with mixed precision."""
    return str(keras.config.dtype_policy().variable_dtype)


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value
