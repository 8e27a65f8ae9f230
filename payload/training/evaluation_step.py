"""Compile the evaluation step, and choose its number of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import tensorflow as tf

from payload.data.dataset import View
from payload.training.losses import hits, losses_of, pixels

EvaluationStep = Callable[..., Any]

SLOTS: Final = 512
"""Maximum test images for each rank and step. It limits the memory of an evaluation."""
PIXELS: Final = 512 * 28 * 28
"""Maximum pixels for each rank and step. Larger images get fewer slots, but at least as many as in training."""


def evaluation_slots(view: View, training_batch: int = 1) -> int:
    """Return the number of test images for each rank and step: as many as fit the limits SLOTS and PIXELS.

    It is at least `training_batch`, this rank's batch in training, but at most SLOTS.
    """
    return max(min(SLOTS, PIXELS // (view.size[0] * view.size[1])), min(training_batch, SLOTS), 1)


def make_evaluation_step(model: Any, *, confusion: bool = False) -> EvaluationStep:
    """Compile an evaluation step for this rank, without communication. It is traced once for each shape.

    The step takes images, uint8 or float32 [slots, height, width, channels], 0 to 255; labels, int32 [slots]; and
    weights, float32 [slots]. It returns float64 [3]: summed loss, correct predictions, and images with the correct
    class in the top five. With `confusion` it also returns counts by true class (row) and predicted class (column),
    int64 [classes, classes]; the predicted class of each image, int32 [slots]; and its probability, float32 [slots].
    """

    def step(images: Any, labels: Any, weights: Any) -> Any:
        logits = model(pixels(images), training=False)
        found = [losses_of(logits, labels), *hits(logits, labels)]
        measures = tf.stack([tf.cast(values, tf.float64) for values in found])
        sums = tf.linalg.matvec(measures, tf.cast(weights, tf.float64))
        if not confusion:
            return sums
        taken_for = tf.argmax(logits, axis=1, output_type=tf.int32)
        used = tf.cast(weights > 0, tf.int64)
        matrix = tf.math.confusion_matrix(labels, taken_for, logits.shape[-1], weights=used, dtype=tf.int64)
        return sums, matrix, taken_for, tf.reduce_max(tf.nn.softmax(tf.cast(logits, tf.float32)), axis=1)

    return tf.function(step, autograph=False)  # type: ignore[no-any-return]  # TensorFlow has no types
