"""Settings and operations that all tf.data pipelines share."""

from __future__ import annotations

import os
from typing import Any, Final

import tensorflow as tf

PREFETCHED_BATCHES: Final = 2
"""Batches to prepare ahead of training."""


def resample(images: Any, moves: Any, size: tuple[int, int]) -> Any:
    """Transform each image by its row of `moves`; return float32 images of `size` (height, width).

    `moves`: matrices of `payload.data.pipeline.augmentation.transforms`. Pixels are interpolated bilinearly, and are
    black beyond the border.
    """
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=tf.cast(images, tf.float32),
        transforms=moves,
        output_shape=list(size),
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="CONSTANT",
    )


def options(threads: int) -> Any:
    """Return pipeline options: deterministic, one thread for each operation, in a private pool of `threads`.

    0 threads: one for each core of this process.
    """
    chosen = tf.data.Options()
    chosen.deterministic = True
    chosen.autotune.enabled = False
    chosen.threading.private_threadpool_size = threads or cores()
    chosen.threading.max_intra_op_parallelism = 1
    return chosen


def cores() -> int:
    """Return the number of logical CPUs that this process's affinity allows. A CPU quota does not lower it."""
    return len(os.sched_getaffinity(0))
