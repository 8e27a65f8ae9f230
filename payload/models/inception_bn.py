"""Inception-BN as in "Scalable Deep Learning Using MXNet" (Smola 2016), after Ioffe and Szegedy 2015, arXiv:1502.03167.

The presentation shows MXNet's code: modules with a single, a double and a pooled branch (A), and modules that halve the
size (B). As in MXNet, convolutions before a batch normalization keep their biases. With 1000 classes the network has
11,295,240 trainable weights, like Caffe's BN-Inception (known from its PyTorch port `bninception`). The 10,016 biases
cancel out in the normalization; without them, it would have 11,285,224.
"""

from __future__ import annotations

from typing import Any

import keras

from payload.models.layers import classifier, maximum, normalized_convolution, standardized


def inception_bn(image_shape: tuple[int | None, int | None, int], classes: int) -> Any:
    """Build the network: float32 [B, height, width, channels], 0 to 1, to logits, float32 [B, classes]."""
    inputs = keras.layers.Input(image_shape)
    x = _conv(standardized(inputs), 64, 7, stride=2, padding=3, name="1")
    x = keras.layers.MaxPooling2D(3, strides=2, padding="same", name="pool_1")(x)
    x = _conv(x, 64, 1, name="2_red")
    x = _conv(x, 192, 3, padding=1, name="2")
    x = keras.layers.MaxPooling2D(3, strides=2, padding="same", name="pool_2")(x)
    x = _module_a(x, 64, 64, 64, 64, 96, "avg", 32, "3a")
    x = _module_a(x, 64, 64, 96, 64, 96, "avg", 64, "3b")
    x = _module_b(x, 128, 160, 64, 96, "3c")
    x = _module_a(x, 224, 64, 96, 96, 128, "avg", 128, "4a")
    x = _module_a(x, 192, 96, 128, 96, 128, "avg", 128, "4b")
    x = _module_a(x, 160, 128, 160, 128, 160, "avg", 128, "4c")
    x = _module_a(x, 96, 128, 192, 160, 192, "avg", 128, "4d")
    x = _module_b(x, 128, 192, 192, 256, "4e")
    x = _module_a(x, 352, 192, 320, 160, 224, "avg", 128, "5a")
    x = _module_a(x, 352, 192, 320, 192, 224, "max", 128, "5b")
    # At 224 pixels this is the presentation's 7 x 7 average. Averaging the whole grid allows other sizes.
    x = keras.layers.GlobalAveragePooling2D(name="global_pool")(x)
    return keras.Model(inputs, classifier(x, classes, name="fc1"), name="inception_bn")


def _conv(inputs: Any, filters: int, size: int, *, name: str, stride: int = 1, padding: int = 0) -> Any:
    """Apply convolution, batch normalization and ReLU: the presentation's ConvFactory."""
    return normalized_convolution(
        inputs, filters, size, name=f"conv_{name}", stride=stride, padding=padding, use_bias=True
    )


def _module_a(
    x: Any,
    one: int,
    reduce_three: int,
    three: int,
    reduce_double: int,
    double: int,
    pool: str,
    projection: int,
    name: str,
) -> Any:
    """Concatenate 1 x 1, 3 x 3, double 3 x 3 and pooled branches: InceptionFactoryA with its arguments in order.

    The numbers are the filters of the convolutions. `pool`: "avg" or "max".
    """
    branch1 = _conv(x, one, 1, name=f"{name}_1x1")
    branch3 = _conv(x, reduce_three, 1, name=f"{name}_3x3_reduce")
    branch3 = _conv(branch3, three, 3, padding=1, name=f"{name}_3x3")
    branch_double = _conv(x, reduce_double, 1, name=f"{name}_double_reduce")
    branch_double = _conv(branch_double, double, 3, padding=1, name=f"{name}_double_0")
    branch_double = _conv(branch_double, double, 3, padding=1, name=f"{name}_double_1")
    pooling = keras.layers.AveragePooling2D if pool == "avg" else keras.layers.MaxPooling2D
    pooled = pooling(3, strides=1, padding="same", name=f"{name}_{pool}_pool")(x)
    pooled = _conv(pooled, projection, 1, name=f"{name}_proj")
    return keras.layers.Concatenate(name=f"{name}_concat")([branch1, branch3, branch_double, pooled])


def _module_b(x: Any, reduce_three: int, three: int, reduce_double: int, double: int, name: str) -> Any:
    """Halve the size with strided convolutions and max pooling: InceptionFactoryB with its arguments in order.

    The numbers are the filters of the convolutions. The branches are concatenated.
    """
    branch3 = _conv(x, reduce_three, 1, name=f"{name}_3x3_reduce")
    branch3 = _conv(branch3, three, 3, stride=2, padding=1, name=f"{name}_3x3")
    branch_double = _conv(x, reduce_double, 1, name=f"{name}_double_reduce")
    branch_double = _conv(branch_double, double, 3, padding=1, name=f"{name}_double_0")
    branch_double = _conv(branch_double, double, 3, stride=2, padding=1, name=f"{name}_double_1")
    pooled = maximum(x, padding=1, name=f"{name}_max_pool")
    return keras.layers.Concatenate(name=f"{name}_concat")([branch3, branch_double, pooled])
