from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.data.sharding import EpochPlan, epoch_order, epoch_plan, shard_bounds, steps_per_epoch

SIZES = st.integers(1, 200)
RANKS = st.integers(1, 17)


def examples_of(plan: EpochPlan, step: int) -> list[int]:
    return [int(index) for index, weight in zip(plan.indices[step], plan.weights[step], strict=True) if weight]


def plans(examples: int, batch: int, ranks: int, seed: int = 1) -> list[EpochPlan]:
    order = epoch_order(examples, seed=seed, epoch=0)
    return [epoch_plan(order, global_batch=batch, rank=rank, ranks=ranks) for rank in range(ranks)]


@given(SIZES, SIZES, RANKS)
def test_every_example_is_seen_once_an_epoch_by_one_rank(examples: int, batch: int, ranks: int) -> None:
    seen = [i for plan in plans(examples, batch, ranks) for step in range(plan.steps) for i in examples_of(plan, step)]
    assert sorted(seen) == list(range(examples))


@given(SIZES, SIZES, RANKS)
def test_a_batch_holds_the_same_examples_on_any_number_of_ranks(examples: int, batch: int, ranks: int) -> None:
    (alone,) = plans(examples, batch, 1)
    shared = plans(examples, batch, ranks)
    for step in range(alone.steps):
        together = [i for plan in shared for i in examples_of(plan, step)]
        assert together == examples_of(alone, step)
        assert {int(plan.batch_sizes[step]) for plan in shared} == {len(together)}


@given(SIZES, SIZES, RANKS)
def test_every_rank_takes_the_same_number_of_steps_of_the_same_shape(examples: int, batch: int, ranks: int) -> None:
    shapes = {plan.indices.shape for plan in plans(examples, batch, ranks)}
    assert shapes == {(steps_per_epoch(examples, batch), -(-batch // ranks))}


@given(st.integers(0, 1000), RANKS)
def test_parts_differ_by_one_example_at_most(size: int, ranks: int) -> None:
    lengths = [end - start for start, end in (shard_bounds(size, rank, ranks) for rank in range(ranks))]
    assert sum(lengths) == size
    assert max(lengths) - min(lengths) <= 1


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    order = epoch_order(100, seed=3, epoch=5)
    assert np.array_equal(order, epoch_order(100, seed=3, epoch=5))
    assert not np.array_equal(order, epoch_order(100, seed=3, epoch=6))
    assert not np.array_equal(order, epoch_order(100, seed=4, epoch=5))


def test_wrong_ranks_and_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="rank = 2"):
        shard_bounds(10, 2, 2)
    with pytest.raises(ValueError, match="global_batch = 0"):
        epoch_plan(np.arange(3), global_batch=0, rank=0, ranks=1)
