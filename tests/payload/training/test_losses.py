from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow

LOGITS = np.array([[3, 2, 1, 0, -1, -2, -3], [0, 0, 0, 0, 0, 0, 0], [-9, 1, 2, 3, 4, 5, 6]], np.float32)


def test_top_1_and_top_5_hits_are_counted() -> None:
    from payload.training.losses import hits

    first, five = hits(LOGITS, np.array([0, 0, 2], np.int32))
    assert first.numpy().tolist() == [1, 1, 0]
    assert five.numpy().tolist() == [1, 1, 1]
    first, five = hits(LOGITS, np.array([5, 6, 1], np.int32))
    assert first.numpy().tolist() == [0, 0, 0]
    assert five.numpy().tolist() == [0, 0, 0]


def test_equal_logits_are_not_all_hits() -> None:
    from payload.training.losses import hits

    even = np.zeros((7, 7), np.float32)
    first, five = hits(even, np.arange(7, dtype=np.int32))
    assert (first.numpy().sum(), five.numpy().sum()) == (1, 5)


def test_with_few_classes_all_are_top_5_hits() -> None:
    from payload.training.losses import hits

    _, five = hits(LOGITS[:, :3], np.array([2, 2, 0], np.int32))
    assert five.numpy().tolist() == [1, 1, 1]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_is_the_cross_entropy_with_the_smoothed_truth(smoothing: float) -> None:
    from payload.training.losses import losses_of

    labels = np.array([1, 2, 6], np.int32)
    logits = LOGITS.astype(np.float64)
    likelihoods = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    truth = np.full((3, 7), smoothing / 7)
    truth[np.arange(3), labels] += 1 - smoothing
    expected = -(truth * likelihoods).sum(axis=1)
    assert losses_of(LOGITS, labels, smoothing).numpy() == pytest.approx(expected, rel=1e-6)


def test_bytes_and_floats_give_the_same_pixels() -> None:
    from payload.training.losses import pixels

    given = np.array([[0, 51, 255]], np.uint8)
    assert pixels(given).numpy().tolist() == pixels(given.astype(np.float32)).numpy().tolist()
    assert pixels(given).numpy().ravel() == pytest.approx([0, 0.2, 1])
