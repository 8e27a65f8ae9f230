from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow

SHAPE = (29, 12, 1)


def sequences(lengths: tuple[int, ...], frames: int = SHAPE[0]) -> np.ndarray:
    drawn = np.random.default_rng(1).uniform(0.1, 0.9, (len(lengths), frames, *SHAPE[1:])).astype(np.float32)
    for number, length in enumerate(lengths):
        drawn[number, length:] = 0
    return drawn


def test_its_weights_are_those_of_four_gates_each_way_and_a_linear_layer() -> None:
    from payload.models.lstm import lstm

    gates = 4 * 64 * (12 + 64 + 1)
    assert lstm(SHAPE, 9).count_params() == 2 * gates + (2 * 64 + 1) * 9 == 40_585


def test_what_follows_the_end_of_a_sequence_changes_nothing() -> None:
    from payload.models.lstm import lstm

    model = lstm(SHAPE, 9)
    longer = lstm((40, *SHAPE[1:]), 9)
    longer.set_weights(model.get_weights())
    given = sequences((7, 20, 29))
    padded = np.concatenate([given, np.zeros((3, 11, *SHAPE[1:]), np.float32)], axis=1)
    assert longer(padded).numpy() == pytest.approx(model(given).numpy(), abs=1e-6)


def test_it_reads_every_frame_and_their_order() -> None:
    from payload.models.lstm import lstm

    model = lstm(SHAPE, 9)
    given = np.repeat(sequences((9,)), 11, axis=0)
    given[range(9), range(9)] += 0.3
    given[9, [3, 4]] = given[9, [4, 3]]
    *changed, expected = model(given).numpy()
    assert (np.abs(np.array(changed) - expected).max(axis=1) > 1e-6).all()


def test_a_sequence_without_a_frame_has_finite_logits() -> None:
    from payload.models.lstm import lstm

    assert np.isfinite(lstm(SHAPE, 9)(sequences((0, 5))).numpy()).all()
