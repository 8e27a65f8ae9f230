from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.data.pipeline.sharding import Share, Shares, epoch_order, shard_bounds

SIZES = st.integers(1, 200)
RANKS = st.integers(1, 17)


@given(st.integers(0, 1000), RANKS)
def test_parts_differ_by_one_example_at_most(size: int, ranks: int) -> None:
    lengths = [end - start for start, end in (shard_bounds(size, rank, ranks) for rank in range(ranks))]
    assert sum(lengths) == size
    assert max(lengths) - min(lengths) <= 1


def test_order_depends_only_on_seed_and_epoch() -> None:
    order = epoch_order(100, seed=3, epoch=5)
    assert np.array_equal(order, epoch_order(100, seed=3, epoch=5))
    assert not np.array_equal(order, epoch_order(100, seed=3, epoch=6))
    assert not np.array_equal(order, epoch_order(100, seed=4, epoch=5))


def shares(examples: int, batch: int, ranks: int, *, by_place: bool) -> list[Shares]:
    order = epoch_order(examples, seed=1, epoch=0)
    return [Shares(order=order, global_batch=batch, rank=rank, ranks=ranks, by_place=by_place) for rank in range(ranks)]


def used(share: Share) -> list[int]:
    return [int(position) for position in share.positions[: share.used]]


@given(SIZES, SIZES, RANKS, st.booleans())
def test_shares_lose_and_repeat_nothing_and_make_the_same_batches_on_any_number_of_ranks(
    examples: int, batch: int, ranks: int, by_place: bool
) -> None:
    (alone,) = shares(examples, batch, 1, by_place=by_place)
    several = shares(examples, batch, ranks, by_place=by_place)
    assert {each.steps for each in several} == {alone.steps}
    everything: list[int] = []
    for step in range(alone.steps):
        parts = [each[step] for each in several]
        together = [position for part in parts for position in used(part)]
        assert together == used(alone[step])
        assert {part.batch_size for part in parts} == {len(together)}
        assert max(part.used for part in parts) - min(part.used for part in parts) <= 1
        assert {len(part.positions) for part in parts} == {-(-batch // ranks)}
        assert all(part.weights.sum() == part.used and (part.weights[: part.used] == 1).all() for part in parts)
        everything += together
    assert sorted(everything) == list(range(examples))


def test_shares_reject_invalid_steps_and_ranks() -> None:
    (only,) = shares(10, 4, 1, by_place=False)
    with pytest.raises(IndexError, match="step 3 of 3"):
        only[3]
    with pytest.raises(ValueError, match="rank = 2"):
        Shares(order=only.order, global_batch=4, rank=2, ranks=2)
    with pytest.raises(ValueError, match="global_batch = 0"):
        Shares(order=only.order, global_batch=0, rank=0, ranks=1)


def test_batch_is_distributed_by_order_unless_by_position() -> None:
    order = np.array([3, 0, 2, 1], np.int64)
    plain = Shares(order=order, global_batch=4, rank=0, ranks=2)
    assert (plain.by_place, used(plain[0])) == (False, [3, 0])
    assert used(Shares(order=order, global_batch=4, rank=0, ranks=2, by_place=True)[0]) == [0, 1]


def test_negative_rank_or_step_is_no_index_from_the_end() -> None:
    (only,) = shares(10, 4, 1, by_place=False)
    with pytest.raises(IndexError, match="step -1 of 3"):
        only[-1]
    with pytest.raises(ValueError, match="rank = -1: must be 0 to 0"):
        Shares(order=only.order, global_batch=4, rank=-1, ranks=1)
    with pytest.raises(ValueError, match="rank = -1: must be 0 to 1"):
        shard_bounds(10, -1, 2)
    assert Shares(order=only.order, global_batch=1, rank=0, ranks=1).steps == 10


def test_unused_slot_points_to_the_first_example_and_weighs_nothing() -> None:
    last = shares(5, 4, 2, by_place=False)[0][1]
    assert (last.used, list(last.positions), list(last.weights)) == (0, [0, 0], [0, 0])
    assert last.positions.dtype == np.int64
    assert last.weights.dtype == np.float32
