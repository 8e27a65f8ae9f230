from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from payload.data.pipeline.random_numbers import CROP, FLIP, uniforms

POSITIONS = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=20)


@given(POSITIONS, st.integers(0, 2**31 - 1), st.integers(0, 1000), st.integers(1, 30))
def test_a_draw_depends_on_its_example_alone(positions: list[int], seed: int, epoch: int, count: int) -> None:
    together = uniforms(np.array(positions), seed=seed, epoch=epoch, stream=CROP, count=count)
    assert together.shape == (len(positions), count)
    assert ((together >= 0) & (together < 1)).all()
    for position, row in zip(positions, together, strict=True):
        alone = uniforms(np.array([position]), seed=seed, epoch=epoch, stream=CROP, count=count)
        assert np.array_equal(alone[0], row)


def test_seed_epoch_and_stream_each_change_the_draws() -> None:
    base = uniforms(np.arange(8), seed=1, epoch=1, stream=CROP, count=2)
    assert not np.array_equal(base, uniforms(np.arange(8), seed=2, epoch=1, stream=CROP, count=2))
    assert not np.array_equal(base, uniforms(np.arange(8), seed=1, epoch=2, stream=CROP, count=2))
    assert not np.array_equal(base, uniforms(np.arange(8), seed=1, epoch=1, stream=FLIP, count=2))


def test_draws_are_even_and_those_of_neighbours_unrelated() -> None:
    drawn = uniforms(np.arange(20_000), seed=1, epoch=0, stream=CROP, count=3)
    counts, _ = np.histogram(drawn, bins=20, range=(0, 1))
    assert abs(counts / counts.mean() - 1).max() < 0.06, "four standard deviations"
    for one, other in ((drawn[:, 0], drawn[:, 1]), (drawn[:-1, 0], drawn[1:, 0]), (drawn[:-1, 2], drawn[1:, 0])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.03
