"""Layers that several networks are built of. Images are channels last: float32 [B, height, width, channels].

Padding is given in pixels, the same on each side, as the papers give it. Keras's "same" pads an even size on one side
only where the stride is two, which moves each feature by half a pixel against the published networks.
"""

from __future__ import annotations

from typing import Any, Final

import keras

from payload.models.normalization import BatchNormalization

MEANS: Final = (0.485, 0.456, 0.406)
DEVIATIONS: Final = (0.229, 0.224, 0.225)
"""Of ImageNet's training images, red, green and blue, 0 to 1, as torchvision states them."""


def standardised(inputs: Any) -> Any:
    """Bring photographs' colours, 0 to 1, to mean 0 and deviation 1, as published runs did; grey ones too."""
    channels = inputs.shape[-1]
    means, deviations = MEANS, DEVIATIONS
    if channels != len(MEANS):
        means, deviations = ((sum(values) / len(values),) * channels for values in (MEANS, DEVIATIONS))
    scale = [1 / deviation for deviation in deviations]
    offset = [-mean / deviation for mean, deviation in zip(means, deviations, strict=True)]
    return keras.layers.Rescaling(scale, offset, name="standardise")(inputs)


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
    """Convolve with `padding` black pixels (rows, columns) on each side; weights as He et al. 2015 start them."""
    rows, columns = _pair(padding)
    height, width = _pair(size)
    # Where "same" pads the same pixels, TensorFlow does it inside the convolution instead of copying the images.
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
    """Convolve, normalise over the batch, and cut off below zero if `relu`.

    `momentum`: of the moving averages; `gamma`: how the scale starts, "ones" or "zeros".
    """
    outputs = convolution(inputs, filters, size, name=name, stride=stride, padding=padding, use_bias=use_bias)
    outputs = BatchNormalization(momentum=momentum, epsilon=epsilon, gamma_initializer=gamma, name=f"{name}_bn")(
        outputs
    )
    return keras.layers.ReLU(name=f"{name}_relu")(outputs) if relu else outputs


def maximum(inputs: Any, *, name: str, size: int = 3, stride: int = 2, padding: int = 0) -> Any:
    """Apply max pooling. Padding is zero, which changes nothing where inputs are not negative."""
    if padding:
        inputs = keras.layers.ZeroPadding2D(padding, name=f"{name}_pad")(inputs)
    return keras.layers.MaxPooling2D(size, strides=stride, name=name)(inputs)


def dense(inputs: Any, units: int, *, name: str, dropout: float) -> Any:
    """Connect fully, cut off below zero, and drop a part of the units while training."""
    outputs = keras.layers.Dense(units, activation="relu", kernel_initializer="he_normal", name=name)(inputs)
    return keras.layers.Dropout(dropout, name=f"{name}_dropout")(outputs)


def classifier(inputs: Any, classes: int, *, name: str) -> Any:
    """Map features, float32 [B, features], to logits; their softmax belongs to the loss.

    Small first weights make all classes about equally likely. Logits have the type of the weights under mixed
    precision, since a loss of float16 logits overflows.
    """
    start = keras.initializers.RandomNormal(stddev=0.01)
    return keras.layers.Dense(classes, kernel_initializer=start, dtype=weight_type(), name=name)(inputs)


def weight_type() -> str:
    """Return the type of the weights: float32 under mixed precision too."""
    return str(keras.config.dtype_policy().variable_dtype)


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value
