"""Make batches from images in memory. Crop, mirroring, rotation, shift, zoom and resizing are one resampling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from payload.data.dataset import Batch, View
from payload.data.datasets.arrays import ArraySplit
from payload.data.datasets.synthetic import SyntheticSplit
from payload.data.pipeline.augmentation import flips, middle_boxes, random_boxes, transforms
from payload.data.pipeline.sharding import Share, Shares
from payload.data.pipeline.tf_data import PREFETCHED_BATCHES, cores, options, resample

InMemory = ArraySplit | SyntheticSplit
"""Splits with images in memory, loaded or generated."""


def batches(
    split: InMemory, view: View, shares: Shares, random_key: tuple[int, int] | None, first_step: int, threads: int
) -> Iterator[Batch]:
    """Yield the batches of these shares from `first_step`.

    `random_key`: seed and epoch for random changes; None: no random changes. Images are float32 if the view resizes or
    changes them, otherwise uint8. `threads`: threads that prepare batches; 0: one for each core of this process.
    """
    resampled = split.size != view.size or (random_key is not None and view.is_random)

    def read(step: int) -> tuple[npt.NDArray[Any], ...]:
        share = shares[int(step)]
        moves = _moves(split, view, share, random_key) if resampled else np.zeros((len(share.positions), 8), np.float32)
        return split.gather(share.positions), split.labels[share.positions], share.weights, moves

    def batch(step: Any) -> tuple[Any, ...]:
        types = (tf.uint8, tf.int32, tf.float32, tf.float32)
        images, labels, weights, moves = tf.numpy_function(read, [step], types)
        images.set_shape([shares.slots, *split.size, split.channels])
        moves.set_shape([shares.slots, 8])
        labels.set_shape([shares.slots])
        weights.set_shape([shares.slots])
        return resample(images, moves, view.size) if resampled else images, labels, weights

    steps = tf.data.Dataset.range(first_step, shares.steps)
    dataset = steps.map(batch, num_parallel_calls=threads or cores()).prefetch(PREFETCHED_BATCHES)
    for step, (images, labels, weights) in enumerate(dataset.with_options(options(threads)), start=first_step):
        yield Batch(images=images, labels=labels, weights=weights, batch_size=shares[step].batch_size)


def _moves(split: InMemory, view: View, share: Share, random_key: tuple[int, int] | None) -> npt.NDArray[np.float32]:
    sizes = np.tile(np.array(split.size), (len(share.positions), 1))
    if random_key is None:
        boxes, still = middle_boxes(sizes, view.size), View(size=view.size)
        return transforms(boxes, np.zeros(len(sizes), bool), still, share.positions, seed=0, epoch=0)
    seed, epoch = random_key
    boxes = middle_boxes(sizes, view.size)
    if view.smallest_crop:
        boxes = random_boxes(sizes, share.positions, smallest=view.smallest_crop, seed=seed, epoch=epoch)
    mirrored = np.zeros(len(sizes), bool)
    if view.flip:
        mirrored = flips(share.positions, seed=seed, epoch=epoch)
    return transforms(boxes, mirrored, view, share.positions, seed=seed, epoch=epoch)
