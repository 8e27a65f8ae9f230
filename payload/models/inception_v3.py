"""Inception-v3: Szegedy et al. 2015, "Rethinking the Inception Architecture", arXiv:1512.00567, table 1.

The auxiliary classifier is omitted. With 1000 classes the network has 23,834,568 trainable weights, the same as
torchvision's `inception_v3` without that classifier (27,161,264 with it). Keras reports 23,851,784 for its
`InceptionV3`: it omits the 17,216 scales of batch normalization, and counts the 34,432 untrained moving averages.
"""

from __future__ import annotations

from typing import Any

import keras

from payload.models.layers import classifier, maximum, normalized_convolution, standardized


def inception_v3(image_shape: tuple[int | None, int | None, int], classes: int, *, dropout: float = 0.5) -> Any:
    """Build the network: float32 [B, height, width, channels], 0 to 1, to logits, float32 [B, classes].

    `dropout`: fraction of the features to drop before the last layer.
    """
    inputs = keras.layers.Input(image_shape)
    x = _conv(standardized(inputs), 32, 3, stride=2, name="conv1a")
    x = _conv(x, 32, 3, name="conv2a")
    x = _conv(x, 64, 3, padding=1, name="conv2b")
    x = maximum(x, name="pool2")
    x = _conv(x, 80, 1, name="conv3b")
    x = _conv(x, 192, 3, name="conv4a")
    x = maximum(x, name="pool4")
    for name, projection in (("5b", 32), ("5c", 64), ("5d", 64)):
        x = _module_35(x, projection, name)
    x = _reduce_to_17(x, "6a")
    for name, width in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        x = _module_17(x, width, name)
    x = _reduce_to_8(x, "7a")
    for name in ("7b", "7c"):
        x = _module_8(x, name)
    x = keras.layers.GlobalAveragePooling2D(name="pool7")(x)
    x = keras.layers.Dropout(dropout, name="dropout")(x)
    return keras.Model(inputs, classifier(x, classes, name="fc"), name="inception_v3")


def _conv(
    inputs: Any,
    filters: int,
    size: int | tuple[int, int],
    *,
    name: str,
    stride: int = 1,
    padding: int | tuple[int, int] = 0,
) -> Any:
    return normalized_convolution(inputs, filters, size, name=name, stride=stride, padding=padding, epsilon=1e-3)


def _module_35(x: Any, projection: int, name: str) -> Any:
    """Concatenate 1 x 1, 5 x 5, double 3 x 3 and pooled branches (figure 5). At 299 pixels the grid is 35 x 35."""
    branch5 = _conv(x, 48, 1, name=f"{name}_5x5_reduce")
    branch5 = _conv(branch5, 64, 5, padding=2, name=f"{name}_5x5")
    branch3 = _conv(x, 64, 1, name=f"{name}_3x3_reduce")
    branch3 = _conv(branch3, 96, 3, padding=1, name=f"{name}_3x3_a")
    branch3 = _conv(branch3, 96, 3, padding=1, name=f"{name}_3x3_b")
    return _joined(name, _conv(x, 64, 1, name=f"{name}_1x1"), branch5, branch3, _pooled(x, projection, name))


def _reduce_to_17(x: Any, name: str) -> Any:
    """Halve the grid, 35 to 17, with strided convolutions and max pooling in parallel (figure 10)."""
    double = _conv(x, 64, 1, name=f"{name}_double_reduce")
    double = _conv(double, 96, 3, padding=1, name=f"{name}_double_a")
    double = _conv(double, 96, 3, stride=2, name=f"{name}_double_b")
    return _joined(name, _conv(x, 384, 3, stride=2, name=f"{name}_3x3"), double, maximum(x, name=f"{name}_pool"))


def _module_17(x: Any, width: int, name: str) -> Any:
    """Apply the module of figure 6: 1 x 7 and 7 x 1 convolutions replace each 7 x 7 convolution.

    At 299 pixels the grid is 17 x 17.
    """
    seven = _conv(x, width, 1, name=f"{name}_7x7_reduce")
    seven = _row(seven, width, 7, name=f"{name}_7x7_a")
    seven = _column(seven, 192, 7, name=f"{name}_7x7_b")
    double = _conv(x, width, 1, name=f"{name}_double_reduce")
    double = _column(double, width, 7, name=f"{name}_double_a")
    double = _row(double, width, 7, name=f"{name}_double_b")
    double = _column(double, width, 7, name=f"{name}_double_c")
    double = _row(double, 192, 7, name=f"{name}_double_d")
    return _joined(name, _conv(x, 192, 1, name=f"{name}_1x1"), seven, double, _pooled(x, 192, name))


def _reduce_to_8(x: Any, name: str) -> Any:
    """Halve the grid, 17 to 8, with strided convolutions and max pooling in parallel."""
    three = _conv(x, 192, 1, name=f"{name}_3x3_reduce")
    three = _conv(three, 320, 3, stride=2, name=f"{name}_3x3")
    seven = _conv(x, 192, 1, name=f"{name}_7x7_reduce")
    seven = _row(seven, 192, 7, name=f"{name}_7x7_a")
    seven = _column(seven, 192, 7, name=f"{name}_7x7_b")
    seven = _conv(seven, 192, 3, stride=2, name=f"{name}_7x7_c")
    return _joined(name, three, seven, maximum(x, name=f"{name}_pool"))


def _module_8(x: Any, name: str) -> Any:
    """Apply the module of figure 7: 1 x 3 and 3 x 1 convolutions in parallel. At 299 pixels the grid is 8 x 8."""
    three = _split(_conv(x, 384, 1, name=f"{name}_3x3_reduce"), f"{name}_3x3")
    double = _conv(x, 448, 1, name=f"{name}_double_reduce")
    double = _split(_conv(double, 384, 3, padding=1, name=f"{name}_double"), f"{name}_double")
    return _joined(name, _conv(x, 320, 1, name=f"{name}_1x1"), *three, *double, _pooled(x, 192, name))


def _split(x: Any, name: str) -> tuple[Any, Any]:
    return _row(x, 384, 3, name=f"{name}_row"), _column(x, 384, 3, name=f"{name}_column")


def _row(x: Any, filters: int, length: int, *, name: str) -> Any:
    return _conv(x, filters, (1, length), padding=(0, length // 2), name=name)


def _column(x: Any, filters: int, length: int, *, name: str) -> Any:
    return _conv(x, filters, (length, 1), padding=(length // 2, 0), name=name)


def _pooled(x: Any, filters: int, name: str) -> Any:
    x = keras.layers.AveragePooling2D(3, strides=1, padding="same", name=f"{name}_pool")(x)
    return _conv(x, filters, 1, name=f"{name}_pool_proj")


def _joined(name: str, *branches: Any) -> Any:
    return keras.layers.Concatenate(name=f"{name}_concat")(list(branches))
