from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.training.checkpoints.policy import Retention, SavePolicy


def test_epochs_end_with_a_checkpoint_at_their_distance_and_at_the_end() -> None:
    cadence = SavePolicy(epochs=3, last_epoch=8)
    assert [epoch for epoch in range(1, 9) if cadence.after_epoch(epoch, epoch / 10)] == [3, 6, 8]


def test_an_epoch_better_than_all_before_ends_with_one_where_the_best_is_kept() -> None:
    cadence = SavePolicy(epochs=100, last_epoch=100, keep_best=True, best=0.5)
    accuracies = (0.4, 0.6, 0.6, 0.55, 0.7)
    assert [cadence.after_epoch(epoch, accuracy) for epoch, accuracy in enumerate(accuracies, 1)] == [
        *(False, True, False, False, True)
    ]


def test_minutes_count_from_the_last_checkpoint() -> None:
    now = 1000.0
    cadence = SavePolicy(epochs=1, last_epoch=1, minutes=2, clock=lambda: now)
    now += 119
    assert not cadence.within_epoch()
    now += 1
    assert cadence.within_epoch()
    cadence.saved()
    assert not cadence.within_epoch()
    now += 120
    assert cadence.within_epoch()


def test_without_minutes_no_epoch_is_interrupted() -> None:
    now = 0.0
    cadence = SavePolicy(epochs=1, last_epoch=1, clock=lambda: now)
    now += 1e9
    assert not cadence.within_epoch()


CHECKPOINTS = st.dictionaries(st.integers(0, 10**9).map("step-{:08d}".format), st.none() | st.floats(0, 1), max_size=12)


@given(checkpoints=CHECKPOINTS, newest=st.integers(1, 6), best=st.booleans())
def test_the_newest_and_the_best_stay_and_no_others(
    checkpoints: dict[str, float | None], newest: int, best: bool
) -> None:
    kept = Retention(newest=newest, best=best).kept(checkpoints)
    order = sorted(checkpoints)
    assert kept >= set(order[-newest:])
    others = kept - set(order[-newest:])
    assert len(others) <= best
    measured = [accuracy for accuracy in checkpoints.values() if accuracy is not None]
    if best and measured:
        assert max(accuracy for name in kept if (accuracy := checkpoints[name]) is not None) == max(measured)
    for name in others:
        assert checkpoints[name] == max(measured)


@given(accuracies=st.lists(st.none() | st.floats(0, 1), max_size=12), newest=st.integers(1, 4))
def test_what_is_kept_step_by_step_is_what_is_kept_of_all(accuracies: list[float | None], newest: int) -> None:
    retention = Retention(newest=newest, best=True)
    every: dict[str, float | None] = {}
    left: dict[str, float | None] = {}
    for step, accuracy in enumerate(accuracies):
        name = f"step-{step:08d}"
        every[name] = left[name] = accuracy
        left = {name: left[name] for name in retention.kept(left)}
        assert set(left) == retention.kept(every)


def test_none_is_too_few() -> None:
    with pytest.raises(ValueError, match="newest = 0"):
        Retention(newest=0)


def test_a_policy_of_epochs_alone_is_not_moved_by_accuracy() -> None:
    policy = SavePolicy(epochs=10, last_epoch=100)
    assert not policy.after_epoch(1, 0.9)
    assert policy.best == 0.9
    assert not policy.after_epoch(2, 0.8)
    assert policy.best == 0.9
    names = {f"step-{n:08d}": float(-n) for n in range(5)}
    assert Retention(newest=3).kept(names) == {"step-00000002", "step-00000003", "step-00000004"}
    assert Retention(newest=1, best=True).kept(names) == {"step-00000000", "step-00000004"}


def test_by_default_neither_the_clock_nor_the_accuracy_asks_for_a_checkpoint_or_retains_one() -> None:
    policy = SavePolicy(epochs=1, last_epoch=1)
    assert (policy.minutes, policy.keep_best, policy.best) == (0, False, None)
    assert Retention(newest=1).best is False


def test_half_a_minute_is_a_time_too() -> None:
    now = 0.0
    policy = SavePolicy(epochs=1, last_epoch=1, minutes=0.5, clock=lambda: now)
    now = 30.0
    assert policy.within_epoch()


def test_of_equally_good_checkpoints_the_newest_stays() -> None:
    equal = {"step-1": 0.5, "step-2": 0.5, "step-3": 0.1}
    assert Retention(newest=1, best=True).kept(equal) == {"step-2", "step-3"}


def test_an_epoch_that_is_only_as_good_as_the_best_ends_with_no_checkpoint() -> None:
    policy = SavePolicy(epochs=10, last_epoch=100, keep_best=True, best=0.5)
    assert [policy.after_epoch(1, 0.5), policy.after_epoch(2, 0.6), policy.best] == [False, True, 0.6]
