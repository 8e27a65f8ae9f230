"""Feed batches to a rank's training loop, so that a data error on one rank stops all ranks.

Within a step the ranks wait for each other. A rank with a data error therefore runs the step with an empty batch and
requests a stop. It raises the error after the step, when no rank waits for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from agent.errors import ReportedError
from payload.data.dataset import Batch, DataError
from payload.tensorflow_errors import first_line


class BatchFeed:
    """Iterate over the remaining batches of an epoch. After a data error, yield one empty batch and stop."""

    def __init__(self, batches: Iterator[Batch], *, epoch: int, first_step: int, steps: int, empty: Batch) -> None:
        """Feed the batches of the steps from `first_step` up to, but not including, `steps`. All count from 0.

        `epoch`: for messages. `empty`: batch to yield if the first one fails.
        """
        self._batches, self._empty = reading_errors(batches), empty
        self._epoch, self._first_step, self.steps = epoch, first_step, steps
        self.error: ReportedError | None = None

    def __iter__(self) -> Iterator[Batch]:
        """Yield a batch for each step. After an error, store the error for `check`, yield an empty batch and stop.

        Fewer batches than steps are an error too. Errors are not raised here.
        """
        for step in range(self._first_step, self.steps):
            batch = self._next(step)
            if batch is None:
                yield self._empty
                return
            yield batch
            self._empty = empty_like(batch)

    def check(self) -> None:
        """Raise the error that was stored during iteration, if any."""
        if self.error is not None:
            raise self.error

    def _next(self, step: int) -> Batch | None:
        try:
            batch = next(self._batches, None)
        except ReportedError as error:
            self.error = error
        else:
            if batch is None:
                self.error = DataError(
                    f"the data of this rank ended after {step} of {self.steps} steps of epoch {self._epoch + 1}; "
                    "all ranks need the same complete files"
                )
            return batch
        return None


def reading_errors(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the batches. If TensorFlow raises an error while it reads a batch, raise DataError instead."""
    while True:
        try:
            batch = next(batches, None)
        except tf.errors.OpError as error:
            raise DataError(_message(error)) from error
        if batch is None:
            return
        yield batch


def empty_batch(size: tuple[int, int], channels: int, slots: int) -> Batch:
    """Return a batch of NumPy arrays without examples (all weights are 0), for a rank without a batch so far."""
    return Batch(
        images=np.zeros((slots, *size, channels), np.uint8),
        labels=np.zeros(slots, np.int32),
        weights=np.zeros(slots, np.float32),
        batch_size=1,
    )


def empty_like(batch: Batch) -> Batch:
    """Return a batch of NumPy arrays without examples (all weights are 0), with the shapes and types of `batch`."""
    return Batch(
        images=_zeros(batch.images),
        labels=_zeros(batch.labels),
        weights=_zeros(batch.weights),
        batch_size=batch.batch_size,
    )


def _zeros(tensor: Any) -> Any:
    kind = tensor.dtype
    return np.broadcast_to(np.zeros((), getattr(kind, "as_numpy_dtype", kind)), tuple(tensor.shape))


def _message(error: Exception) -> str:
    """Extract the original message from an error that was raised in a TensorFlow pipeline, or else its first line."""
    text = str(error)
    found = re.search(r"(?:\w+Error|Exception): (.+)", text)
    return found[1] if found else first_line(error)
