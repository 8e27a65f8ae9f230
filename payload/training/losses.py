"""Compute the loss and hits of each image in a batch, within a graph."""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf

TOP: Final = 5
"""A top-5 hit means that the correct class is among this many most likely classes."""


def pixels(images: Any) -> Any:
    """Convert pixels, 0 to 255, to float32, 0 to 1. The network's first layer casts them to its own type."""
    return tf.cast(images, tf.float32) / 255


def losses_of(logits: Any, labels: Any, smoothing: float = 0.0) -> Any:
    """Return the cross-entropy of each image, [B], in the type of the logits.

    `smoothing`: fraction of the target probability to distribute over all classes, including the correct one (Szegedy
    et al. 2015, arXiv:1512.00567, section 7).
    """
    if not smoothing:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    classes = logits.shape[-1]
    each = smoothing / classes
    truth = tf.one_hot(labels, classes, on_value=1 - smoothing + each, off_value=each, dtype=logits.dtype)
    return tf.nn.softmax_cross_entropy_with_logits(truth, logits)


def hits(logits: Any, labels: Any) -> tuple[Any, Any]:
    """Return two float32 [B], 0 or 1: whether the correct class is the most likely, and whether it is in the top five.

    With five classes or fewer the second is always 1. Among equal logits, the first one counts as the largest.
    """
    ranked = tf.math.top_k(logits, k=min(TOP, logits.shape[-1])).indices
    right = tf.cast(tf.equal(ranked, tf.cast(labels, tf.int32)[:, None]), tf.float32)
    return right[:, 0], tf.reduce_sum(right, axis=1)
