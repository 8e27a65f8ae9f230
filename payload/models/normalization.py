"""Batch normalization (Ioffe and Szegedy 2015, arXiv:1502.03167) over the images that count, on this rank or on all.

Keras's layer consists of about ten operations and supports only one rank. This implementation differs as follows:

- A batch in which every image counts uses TensorFlow's fused kernel.
- Images that do not count, such as unused slots of a partial last batch, are excluded from the moments.
- Moments may include the images of all ranks, so that ranks with small batches normalize like one rank with a large
  one.
- The moving moments, used to normalize images after training, always include all ranks.

The weights of images and the sum over ranks are not inputs of a network. A context around the call provides them:

    with counting(weights, total) as moments:
        logits = model(images, training=True)
    update_moving_moments(moments.layers, moments.packed())  # with several ranks, after a sum over all

As in the paper, the moving variance is an estimate for unseen images: the batch's variance times n / (n - 1). Keras's
layer uses the batch's variance itself.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import keras
import tensorflow as tf

Total = Callable[[Any, str], Any]
"""Sums a tensor over all ranks within the graph (collective). The name must be the same on all ranks."""
FUSED_TYPES: Final = (tf.float32, tf.bfloat16, tf.float16)


class Moments:
    """Collect the moments of all layers in a pass through a network, and the number of values behind each moment."""

    def __init__(self, weights: Any | None, total: Total | None) -> None:
        self.weights, self.total = weights, total
        self.layers: list[BatchNormalization] = []
        self._parts: list[Any] = []

    def add(self, layer: BatchNormalization, mean: Any, variance: Any, values: Any) -> None:
        """Record a layer's mean and variance, [channels] each, and the number of values per channel."""
        values = tf.cast(values, mean.dtype)
        self.layers.append(layer)
        self._parts += [values * mean, values * variance, values[None]]

    def packed(self) -> Any:
        """Return all moments as one vector that can be summed over passes and ranks; empty if no layer added any.

        Each layer contributes its mean and variance, both multiplied by the number of values, then this number.
        """
        return tf.concat(self._parts, 0) if self._parts else tf.zeros([0])


_around: contextvars.ContextVar[Moments | None] = contextvars.ContextVar("moments", default=None)


@contextlib.contextmanager
def counting(weights: Any | None, total: Total | None = None) -> Iterator[Moments]:
    """Let batch normalization layers in a block count images by weights [B], 0 or 1 (None: all); collect their moments.

    With `total`, moments include the images of all ranks. Every such layer is then collective in training. The layers'
    moving moments do not change until `update_moving_moments` is called with the collected moments.
    """
    moments = Moments(weights, total)
    token = _around.set(moments)
    try:
        yield moments
    finally:
        _around.reset(token)


def update_moving_moments(layers: Sequence[BatchNormalization], packed: Any) -> None:
    """Update the moving moments of layers from a batch's moments: `Moments.packed`, or a sum of such vectors.

    `layers`: in the order of the vector. A layer without values keeps its moments.
    """
    sizes = [size for layer in layers for size in (layer.moving_mean.shape[0], layer.moving_mean.shape[0], 1)]
    parts = tf.split(packed, sizes) if sizes else []
    for layer, mean, variance, values in zip(layers, parts[::3], parts[1::3], parts[2::3], strict=True):
        layer.update_moving_moments(
            tf.math.divide_no_nan(mean, values), tf.math.divide_no_nan(variance, values), values[0]
        )


@keras.saving.register_keras_serializable(package="deepcdk")
class BatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]  # Keras has no types
    """Keras's batch normalization with other kernels. Only for channels last, with scale and offset."""

    def build(self, input_shape: Any) -> None:
        """Create the variables. Raises ValueError for options that are not supported."""
        if self.axis not in (-1, len(input_shape) - 1) or not (self.scale and self.center) or self.renorm:
            raise ValueError(f"{self.name}: supports only the last axis, with scale and offset, and without renorm")
        super().build(input_shape)

    def call(self, inputs: Any, training: bool | None = None, mask: Any | None = None) -> Any:
        """Normalize [B, ..., channels]: in training by the batch's moments, otherwise by the moving moments.

        The result has the same shape and type. In training, the moving moments are updated too, except within
        `counting`. A layer that is not trainable always uses its moving moments, and keeps them.
        """
        fusible = inputs.dtype in FUSED_TYPES and len(inputs.shape) in (2, 4)
        if not (training and self.trainable):
            return self._fused(inputs, training=False)[0] if fusible else super().call(inputs, training=False)
        moments = _around.get() or Moments(None, None)
        plain = moments.weights is None and moments.total is None
        outputs, *found = self._fused(inputs, training=True) if fusible and plain else self._composed(inputs, moments)
        if _around.get():
            moments.add(self, *found)
        else:
            self.update_moving_moments(*found)
        return outputs

    def update_moving_moments(self, mean: Any, variance: Any, values: Any) -> None:
        """Update the moving moments from a batch's mean and variance, [channels] each.

        `values`: number of values per channel in the batch. If it is 0, the moving moments stay unchanged.
        """
        share = (1 - self.momentum) * tf.cast(values > 0, mean.dtype)
        for moving, moment in ((self.moving_mean.value, mean), (self.moving_variance.value, variance)):
            moving.assign_sub(tf.cast(share, moving.dtype) * (moving - tf.cast(moment, moving.dtype)))

    def _fused(self, inputs: Any, *, training: bool) -> tuple[Any, Any, Any, Any]:
        """Normalize with TensorFlow's kernel; return outputs, mean and variance per channel, and values per channel.

        In training, the variance is the estimate for unseen images: the batch's variance times n / (n - 1).
        """
        images = inputs if len(inputs.shape) == 4 else inputs[:, None, None, :]
        none = tf.zeros([0])
        outputs, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=images,
            scale=tf.convert_to_tensor(self.gamma.value),
            offset=tf.convert_to_tensor(self.beta.value),
            mean=none if training else tf.convert_to_tensor(self.moving_mean.value),
            variance=none if training else tf.convert_to_tensor(self.moving_variance.value),
            epsilon=self.epsilon,
            is_training=training,
        )
        outputs = outputs if len(inputs.shape) == 4 else outputs[:, 0, 0, :]
        return outputs, mean, variance, tf.reduce_prod(tf.shape(images)[:-1])

    def _composed(self, inputs: Any, moments: Moments) -> tuple[Any, Any, Any, Any]:
        """Return the same values as `_fused`, from the images that count."""
        images = tf.cast(inputs, tf.float64 if inputs.dtype == tf.float64 else tf.float32)
        weights = tf.ones(tf.shape(images)[:1]) if moments.weights is None else moments.weights
        outputs, mean, variance, values = normalize(
            images,
            tf.convert_to_tensor(self.gamma.value),
            tf.convert_to_tensor(self.beta.value),
            tf.cast(weights, images.dtype),
            epsilon=self.epsilon,
            total=moments.total,
            name=self.path,
        )
        unseen = tf.cast(values / tf.maximum(values - 1, 1), variance.dtype)
        return tf.cast(outputs, inputs.dtype), mean, variance * unseen, values


def normalize(
    images: Any, gamma: Any, beta: Any, weights: Any, *, epsilon: float, total: Total | None, name: str
) -> tuple[Any, Any, Any, Any]:
    """Normalize images [B, ..., C] by the moments of the images with weight 1 in `weights`, [B].

    Returns outputs, mean [C], variance [C], and the number of values per channel, float64. For images with weight 0,
    the output is `beta`. Normalized by the moments of others, they could grow to infinity from layer to layer, and
    infinity times 0 is NaN. With `total`, moments include all ranks, with one sum in the forward pass and one in the
    backward pass. Sums over ranks use float64, because a variance is a difference of two sums.
    """
    axes = list(range(len(images.shape) - 1))
    count = tf.reshape(weights, [-1] + [1] * len(axes))
    places = tf.cast(tf.reduce_prod(tf.shape(images)[1:-1]), images.dtype)

    @tf.custom_gradient  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def normalized(images: Any, gamma: Any, beta: Any) -> tuple[Any, Callable[..., Any]]:
        own = tf.reduce_sum(weights) * places
        mean = tf.math.divide_no_nan(tf.reduce_sum(count * images, axes), own)
        squares = tf.reduce_sum(count * tf.square(images - mean), axes)
        values = tf.cast(own, tf.float64)
        if total is not None:
            mean, squares, values = _moments_of_all(mean, squares, values, total, f"{name}.forward")
        number = tf.cast(values, images.dtype)
        variance = tf.math.divide_no_nan(squares, number)
        scale = tf.where(number > 0, tf.math.rsqrt(variance + epsilon), 0)

        def backward(given: Any, *_: Any) -> tuple[Any, Any, Any]:
            whitened = count * (images - mean) * scale
            own_beta, own_gamma = tf.reduce_sum(given, axes), tf.reduce_sum(given * whitened, axes)
            sums = tf.concat([own_beta, own_gamma], 0)
            if total is not None:
                sums = tf.cast(total(tf.cast(sums, tf.float64), f"{name}.backward"), images.dtype)
            all_beta, all_gamma = tf.split(sums, 2)
            pull = tf.math.divide_no_nan(all_beta + whitened * all_gamma, number)
            return count * gamma * scale * (given - pull), own_gamma, own_beta

        outputs = count * (images - mean) * (scale * gamma) + beta
        return (outputs, mean, variance, values), backward

    outputs, mean, variance, values = normalized(images, gamma, beta)
    return outputs, tf.stop_gradient(mean), tf.stop_gradient(variance), tf.stop_gradient(values)


def _moments_of_all(mean: Any, squares: Any, values: Any, total: Total, name: str) -> tuple[Any, Any, Any]:
    """Combine all ranks' means, sums of squared differences and numbers of values; return them over all ranks."""
    kind, channels = mean.dtype, mean.shape[0]
    mean, squares = tf.cast(mean, tf.float64), tf.cast(squares, tf.float64)
    own = tf.concat([values * mean, squares + values * tf.square(mean), values[None]], 0)
    sums, squares, values = tf.split(total(own, name), [channels, channels, 1])
    mean = tf.math.divide_no_nan(sums, values)
    squares = tf.maximum(squares - values * tf.square(mean), 0)
    return tf.cast(mean, kind), tf.cast(squares, kind), values[0]
