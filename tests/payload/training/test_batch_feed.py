from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow

SLOTS = 3


def batch(value: int, skipped: int = 0) -> Any:
    from payload.data.dataset import Batch

    return Batch(
        images=np.full((SLOTS, 2, 2, 1), value, np.float32),
        labels=np.full(SLOTS, value, np.int32),
        weights=np.ones(SLOTS, np.float32),
        batch_size=5,
        skipped=skipped,
    )


def feed(batches: Iterator[Any], *, first_step: int = 0, steps: int = 3) -> Any:
    from payload.training.batch_feed import BatchFeed, empty_batch

    return BatchFeed(batches, epoch=1, first_step=first_step, steps=steps, empty=empty_batch((2, 2), 1, SLOTS))


def test_batches_are_unchanged() -> None:
    given = feed(iter([batch(1), batch(2)]), first_step=1)
    assert [found.labels[0] for found in given] == [1, 2]
    given.check()
    assert given.error is None


def test_data_that_end_early_give_an_empty_batch_and_an_error() -> None:
    from payload.data.dataset import DataError

    given = feed(iter([batch(1, skipped=2)]))
    first, last = given
    assert first.weights.sum() == SLOTS
    assert (last.weights.sum(), last.images.sum(), last.skipped) == (0, 0, 0)
    assert (last.images.shape, last.images.dtype, last.batch_size) == ((SLOTS, 2, 2, 1), np.float32, 5)
    with pytest.raises(DataError, match=r"ended after 1 of 3 steps of epoch 2; all ranks need the same complete files"):
        given.check()


def test_data_that_fail_at_once_give_an_empty_batch_of_the_planned_shape() -> None:
    from payload.data.dataset import DataError

    def batches() -> Iterator[Any]:
        yield from map(fail, range(3))

    def fail(step: int) -> Any:
        raise DataError("file x is damaged")

    given = feed(batches())
    (only,) = given
    assert (only.images.shape, only.weights.sum(), only.batch_size) == ((SLOTS, 2, 2, 1), 0, 1)
    with pytest.raises(DataError, match=r"^file x is damaged$"):
        given.check()


def test_error_in_tensorflows_pipeline_is_reported_without_tensorflows_wrapper() -> None:
    import tensorflow as tf

    from payload.data.dataset import DataError

    def read(step: int) -> Any:
        if step == 1:
            raise DataError("/data/train-00001: record 7 is damaged")
        return np.float32(step)

    def batches() -> Iterator[Any]:
        numbers = tf.data.Dataset.range(3).map(lambda step: tf.numpy_function(read, [step], tf.float32))
        for _ in numbers:
            yield batch(1)

    given = feed(batches())
    assert len(list(given)) == 2
    with pytest.raises(DataError, match=r"^/data/train-00001: record 7 is damaged$"):
        given.check()
