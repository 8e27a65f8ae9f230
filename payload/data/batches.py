"""What each step is fed with on one rank: one tf.data pipeline, whatever the data are made of.

Examples of a step follow from seed, epoch and step, and random changes from seed, epoch and example. So a run goes on
at any step, on any number of ranks, with what it would have seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from payload.data.crops import middle_boxes, random_boxes
from payload.data.parts import Batch, Part, View
from payload.data.sharding import Share, Shares
from payload.data.transforms import flips, transforms

AHEAD: Final = 2
"""Batches made before they are asked for."""


class InMemory(Protocol):
    """A part whose images can be had at once."""

    @property
    def labels(self) -> npt.NDArray[np.int32]:
        """Return the class of each example."""

    @property
    def size(self) -> tuple[int, int]:
        """Return height and width of all images."""

    @property
    def channels(self) -> int:
        """Return the channels of all images."""

    def gather(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return the images at these positions."""


def training_batches(
    part: Part,
    view: View,
    *,
    seed: int,
    epoch: int,
    first_step: int = 0,
    global_batch: int,
    rank: int,
    ranks: int,
    threads: int = 0,
) -> Iterator[Batch]:
    """Yield this rank's batches of an epoch from `first_step` on, all of one shape, as many on every rank.

    `threads`: images decoded or moved at a time; 0: one for each core of this process.
    """
    order = part.order(seed=seed, epoch=epoch)
    shares = Shares(order=order, global_batch=global_batch, rank=rank, ranks=ranks)
    return _from_memory(part, view, shares, (seed, epoch), first_step, threads)  # type: ignore[arg-type]


def test_batches(part: Part, view: View, *, slots: int, rank: int, ranks: int, threads: int = 0) -> Iterator[Batch]:
    """Yield this rank's batches of all test images, each of them once over all ranks; no more slots than needed."""
    shares = Shares(
        order=np.arange(part.examples), global_batch=min(slots * ranks, part.examples), rank=rank, ranks=ranks
    )
    return _from_memory(part, view, shares, None, 0, threads)  # type: ignore[arg-type]


def _from_memory(
    part: InMemory, view: View, shares: Shares, draws: tuple[int, int] | None, first_step: int, threads: int
) -> Iterator[Batch]:
    """Yield the shares as batches. `draws`: seed and epoch of the random changes; None: none are made."""
    resampled = part.size != view.size or (draws is not None and view.is_random)

    def read(step: int) -> tuple[npt.NDArray[Any], ...]:
        share = shares[int(step)]
        moves = _moves(part, view, share, draws) if resampled else np.zeros((len(share.positions), 8), np.float32)
        return part.gather(share.positions), part.labels[share.positions], share.weights, moves

    def batch(step: Any) -> tuple[Any, ...]:
        types = (tf.uint8, tf.int32, tf.float32, tf.float32)
        images, labels, weights, moves = tf.numpy_function(read, [step], types)
        images.set_shape([shares.slots, *part.size, part.channels])
        moves.set_shape([shares.slots, 8])
        labels.set_shape([shares.slots])
        weights.set_shape([shares.slots])
        return resample(images, moves, view.size) if resampled else images, labels, weights

    steps = tf.data.Dataset.range(first_step, shares.steps)
    dataset = steps.map(batch, num_parallel_calls=threads or cores()).prefetch(AHEAD)
    for step, (images, labels, weights) in enumerate(dataset.with_options(options(threads)), start=first_step):
        yield Batch(images=images, labels=labels, weights=weights, batch_size=shares[step].batch_size)


def _moves(part: InMemory, view: View, share: Share, draws: tuple[int, int] | None) -> npt.NDArray[np.float32]:
    sizes = np.tile(np.array(part.size), (len(share.positions), 1))
    if draws is None:
        boxes, still = middle_boxes(sizes, view.size), View(size=view.size)
        return transforms(boxes, np.zeros(len(sizes), bool), still, share.positions, seed=0, epoch=0)
    seed, epoch = draws
    boxes = middle_boxes(sizes, view.size)
    if view.smallest_crop:
        boxes = random_boxes(sizes, share.positions, smallest=view.smallest_crop, seed=seed, epoch=epoch)
    mirrored = np.zeros(len(sizes), bool)
    if view.flip:
        mirrored = flips(share.positions, seed=seed, epoch=epoch)
    return transforms(boxes, mirrored, view, share.positions, seed=seed, epoch=epoch)


def resample(images: Any, moves: Any, size: tuple[int, int]) -> Any:
    """Take each image through its transform (`payload.data.transforms`): bilinear, black beyond the border; float32."""
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=tf.cast(images, tf.float32),
        transforms=moves,
        output_shape=list(size),
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="CONSTANT",
    )


def options(threads: int) -> Any:
    """Return how the pipeline runs: in the given order, on threads of its own, each operation on one."""
    chosen = tf.data.Options()
    chosen.deterministic = True
    chosen.autotune.enabled = False
    chosen.threading.private_threadpool_size = threads or cores()
    chosen.threading.max_intra_op_parallelism = 1
    return chosen


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
