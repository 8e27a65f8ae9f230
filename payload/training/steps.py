"""The compiled steps: one of training, one of evaluation. Their shapes never change, so each is traced once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from payload.training import distributed

TrainStep = Callable[..., Any]
EvaluationStep = Callable[..., Any]


def make_train_step(
    model: Any, optimizer: Any, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int32], *, augmented: bool
) -> TrainStep:
    """Compile one training step, which is collective.

    The step takes indices int32 [slots], weights float32 [slots] (0 marks an unused slot), transforms float32
    [slots, 8] (ignored unless `augmented`), the global batch's size, the learning rate, and stop (1 when this rank was
    asked to stop). It returns float32 [3], summed over all ranks: loss, images recognised, ranks asked to stop.

    Each rank's loss is the sum over its examples divided by the size of the global batch, and gradients are summed:
    they equal those of one rank with the whole batch, however unevenly it is split.
    """
    all_images, all_labels = tf.constant(images), tf.constant(labels)
    variables = [variable.value for variable in model.trainable_variables]
    height, width = images.shape[1:3]

    def step(indices: Any, weights: Any, transforms: Any, batch_size: Any, learning_rate: Any, stop: Any) -> Any:
        batch = _pixels(tf.gather(all_images, indices))
        if augmented:
            batch = _transform(batch, transforms, height, width)
        truth = tf.gather(all_labels, indices)
        with tf.GradientTape() as tape:
            logits = model(batch, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(truth, logits) * weights
            loss = tf.reduce_sum(losses) / batch_size
        gradients = tape.gradient(loss, variables)
        own = tf.stack([tf.reduce_sum(losses), tf.reduce_sum(_hits(logits, truth) * weights), stop])
        *summed, sums = distributed.sum_in_graph([*gradients, own])
        optimizer.learning_rate.assign(learning_rate)
        optimizer.apply_gradients(zip(summed, model.trainable_variables, strict=True))
        return sums

    return _compiled(step)


def make_evaluation_step(model: Any, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int32]) -> EvaluationStep:
    """Compile one step of evaluation: indices and weights, [slots], to float64 [2]: summed loss, images recognised."""
    all_images, all_labels = tf.constant(images), tf.constant(labels)

    def step(indices: Any, weights: Any) -> Any:
        logits = model(_pixels(tf.gather(all_images, indices)), training=False)
        truth = tf.gather(all_labels, indices)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(truth, logits)
        found = tf.stack([losses * weights, _hits(logits, truth) * weights])
        return tf.reduce_sum(tf.cast(found, tf.float64), axis=1)

    return _compiled(step)


def _compiled(step: Callable[..., Any]) -> Callable[..., Any]:
    """Make a graph of a step, without rewriting its Python, of which none depends on a tensor."""
    graph: Callable[..., Any] = tf.function(step, autograph=False)
    return graph


def _pixels(images: Any) -> Any:
    """Turn bytes into float32, 0 to 1."""
    return tf.cast(images, tf.float32) / 255


def _hits(logits: Any, labels: Any) -> Any:
    """Return 1 for each image whose largest logit is its label's, else 0; float32 [B]."""
    return tf.cast(tf.equal(tf.argmax(logits, axis=1, output_type=tf.int32), labels), tf.float32)


def _transform(images: Any, transforms: Any, height: int, width: int) -> Any:
    """Move each image by its transform, with bilinear interpolation and black beyond the border."""
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=transforms,
        output_shape=[height, width],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="CONSTANT",
    )
