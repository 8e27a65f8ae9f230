"""The batches of a rank, fed so that an error of its data ends all ranks together.

Within a step the ranks wait for each other. So a rank whose data fail takes that step with an empty batch, requests a
stop with it, and raises only when all ranks are between two steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from agent.errors import ReportedError
from payload.data.types import Batch, DataError


class BatchFeed:
    """The remaining batches of an epoch; where the data fail, an empty one follows the last good one."""

    def __init__(self, batches: Iterator[Batch], *, epoch: int, first_step: int, steps: int, empty: Batch) -> None:
        """Feed the batches of `epoch` from `first_step` to `steps`. `empty`: used if the first fails."""
        self._batches, self._empty = reading_errors(batches), empty
        self._epoch, self._first_step, self.steps = epoch, first_step, steps
        self.error: ReportedError | None = None

    def __iter__(self) -> Iterator[Batch]:
        """Yield a batch for each step, or until one that is empty."""
        for step in range(self._first_step, self.steps):
            batch = self._next(step)
            if batch is None:
                yield self._empty
                return
            yield batch
            self._empty = empty_like(batch)

    def check(self) -> None:
        """Raise the error that occurred, if any. Raises ReportedError."""
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
                    "give every rank the same whole files"
                )
            return batch
        return None


def reading_errors(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield batches; raise DataError for what TensorFlow raises while it makes one."""
    while True:
        try:
            batch = next(batches, None)
        except tf.errors.OpError as error:
            raise DataError(_message(error)) from error
        if batch is None:
            return
        yield batch


def empty_batch(size: tuple[int, int], channels: int, slots: int) -> Batch:
    """Return a batch without examples, for a rank that has not had a batch yet."""
    return Batch(
        images=np.zeros((slots, *size, channels), np.uint8),
        labels=np.zeros(slots, np.int32),
        weights=np.zeros(slots, np.float32),
        batch_size=1,
    )


def empty_like(batch: Batch) -> Batch:
    """Return a batch without examples, of the same shapes and types as another."""
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
    """Return the message of an error raised within a TensorFlow pipeline, without its wrapping."""
    text = str(error)
    found = re.search(r"(?:\w+Error|Exception): (.+)", text)
    return found[1] if found else text.partition("\n")[0]
