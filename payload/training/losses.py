"""Loss and hits of each image of a batch, within a graph."""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf

TOP: Final = 5
"""Likeliest classes among which the right one must be for a top-5 hit."""


def pixels(images: Any) -> Any:
    """Turn 0 to 255, bytes or floats, into float32, 0 to 1. The first layer casts them to its own type."""
    return tf.cast(images, tf.float32) / 255


def losses_of(logits: Any, labels: Any, smoothing: float = 0.0) -> Any:
    """Return the cross-entropy of each image, [B], in the type of the logits.

    `smoothing`: fraction of the truth that is spread over all classes, the right one included (Szegedy et al. 2015,
    arXiv:1512.00567, section 7).
    """
    if not smoothing:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    classes = logits.shape[-1]
    each = smoothing / classes
    truth = tf.one_hot(labels, classes, on_value=1 - smoothing + each, off_value=each, dtype=logits.dtype)
    return tf.nn.softmax_cross_entropy_with_logits(truth, logits)


def hits(logits: Any, labels: Any) -> tuple[Any, Any]:
    """Return for each image whether its class is the likeliest, and whether it is in the top five: 0 or 1, float32 [B].

    With five classes or fewer the second is always 1. Of equal logits the first counts as the larger.
    """
    ranked = tf.math.top_k(logits, k=min(TOP, logits.shape[-1])).indices
    right = tf.cast(tf.equal(ranked, tf.cast(labels, tf.int32)[:, None]), tf.float32)
    return right[:, 0], tf.reduce_sum(right, axis=1)
