"""Options of every tf.data pipeline, and the transform of its images."""

from __future__ import annotations

import os
from typing import Any, Final

import tensorflow as tf

PREFETCHED_BATCHES: Final = 2
"""Batches that are prefetched."""


def resample(images: Any, moves: Any, size: tuple[int, int]) -> Any:
    """Apply to each image its transform (`pipeline.changes`): bilinear, black beyond the border; float32."""
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=tf.cast(images, tf.float32),
        transforms=moves,
        output_shape=list(size),
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="CONSTANT",
    )


def options(threads: int) -> Any:
    """Return options of a pipeline: deterministic, on threads of its own, each operation on one."""
    chosen = tf.data.Options()
    chosen.deterministic = True
    chosen.autotune.enabled = False
    chosen.threading.private_threadpool_size = threads or cores()
    chosen.threading.max_intra_op_parallelism = 1
    return chosen


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
