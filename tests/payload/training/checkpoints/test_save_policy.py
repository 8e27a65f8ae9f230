"""When a checkpoint is due, the cost of checkpoints, and which checkpoints are retained."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.training.checkpoints.save_policy import LEAST, Retention, SavePolicy, Standing, StepCosts


def test_checkpoints_are_every_n_epochs_and_at_the_end() -> None:
    cadence = SavePolicy(epochs=3, last_epoch=8)
    assert [epoch for epoch in range(1, 9) if cadence.after_epoch(epoch, epoch / 10)] == [3, 6, 8]


def test_best_epoch_gets_a_checkpoint_if_best_is_kept() -> None:
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


def test_write_time_is_subtracted_from_checkpoint_interval() -> None:
    policy = SavePolicy(epochs=1, last_epoch=1, minutes=2)
    assert policy.interval_s == 120
    policy.wrote(cost_s=0, written_s=30)
    assert policy.interval_s == 90
    policy.wrote(cost_s=0, written_s=500)
    assert policy.interval_s == 60, "not one after the other where a write takes longer than the bound"


def test_timed_checkpoints_are_rarer_if_too_expensive() -> None:
    now = 0.0
    policy = SavePolicy(epochs=1, last_epoch=1, minutes=1, cost_limit=0.02, clock=lambda: now)
    policy.wrote(cost_s=1.0, written_s=0)
    assert policy.interval_s == 60, "they cost less"
    policy.wrote(cost_s=5.0, written_s=0)
    assert policy.interval_s == pytest.approx(150)
    now = 149.0
    assert not policy.within_epoch()
    now = 151.0
    assert policy.within_epoch()
    for _ in range(3):
        policy.wrote(cost_s=0.1, written_s=0)
    assert policy.interval_s == 60, "the latest count"
    policy.wrote(cost_s=9000.0, written_s=0)
    assert SavePolicy(epochs=1, last_epoch=1, minutes=1).interval_s == 60, "without a limit"


@given(
    minutes=st.floats(0.01, 100),
    limit=st.floats(0.001, 0.5),
    costs=st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 1000)), min_size=1, max_size=9),
)
def test_checkpoint_never_costs_more_of_its_interval_than_the_limit(
    minutes: float, limit: float, costs: list[tuple[float, float]]
) -> None:
    policy = SavePolicy(epochs=1, last_epoch=1, minutes=minutes, cost_limit=limit)
    for cost_s, written_s in costs:
        policy.wrote(cost_s=cost_s, written_s=written_s)
    latest = [cost_s for cost_s, _ in costs][-3:]
    assert sum(latest) / len(latest) <= policy.interval_s * limit * (1 + 1e-9)
    cheap = sum(latest) / len(latest) / limit + min(costs[-1][1], 30 * minutes) <= 60 * minutes
    assert not cheap or policy.interval_s + costs[-1][1] <= 60 * minutes + max(0, costs[-1][1] - 30 * minutes) + 1e-6


def test_without_minutes_no_epoch_is_interrupted() -> None:
    now = 0.0
    cadence = SavePolicy(epochs=1, last_epoch=1, clock=lambda: now)
    now += 1e9
    assert not cadence.within_epoch()


STANDINGS = st.builds(Standing, accuracy=st.none() | st.floats(0, 1), ends_epoch=st.booleans())
CHECKPOINTS = st.dictionaries(st.integers(0, 10**9).map("step-{:08d}".format), STANDINGS, max_size=12)


def after_epochs(accuracies: dict[str, float]) -> dict[str, Standing]:
    return {name: Standing(accuracy=accuracy, ends_epoch=True) for name, accuracy in accuracies.items()}


@given(checkpoints=CHECKPOINTS, newest=st.integers(1, 6), best=st.booleans())
def test_only_newest_and_best_checkpoints_are_kept(checkpoints: dict[str, Standing], newest: int, best: bool) -> None:
    kept = Retention(newest=newest, best=best).kept(checkpoints)
    order = sorted(checkpoints)
    wanted = {*order[-min(newest, 2) :], *[name for name in order if checkpoints[name].ends_epoch][-newest:]}
    assert kept >= wanted
    others = kept - wanted
    assert len(others) <= best
    measured = [one.accuracy for one in checkpoints.values() if one.accuracy is not None]
    if best and measured:
        assert max(one for name in kept if (one := checkpoints[name].accuracy) is not None) == max(measured)
    for name in others:
        assert checkpoints[name].accuracy == max(measured)


@given(standings=st.lists(STANDINGS, max_size=12), newest=st.integers(1, 4))
def test_incremental_retention_equals_retention_of_all(standings: list[Standing], newest: int) -> None:
    retention = Retention(newest=newest, best=True)
    every: dict[str, Standing] = {}
    left: dict[str, Standing] = {}
    for step, standing in enumerate(standings):
        name = f"step-{step:08d}"
        every[name] = left[name] = standing
        left = {name: left[name] for name in retention.kept(left)}
        assert set(left) == retention.kept(every)


def test_checkpoints_within_epochs_do_not_push_out_those_after_epochs() -> None:
    ends = (0, 10, 20)
    steps = {f"step-{n:02d}": Standing(accuracy=None, ends_epoch=n in ends) for n in (*ends, 21, 22, 23)}
    assert Retention(newest=3).kept(steps) == {"step-00", "step-10", "step-20", "step-22", "step-23"}
    assert Retention(newest=1).kept(steps) == {"step-20", "step-23"}


def test_zero_checkpoints_are_rejected() -> None:
    with pytest.raises(ValueError, match="newest = 0"):
        Retention(newest=0)


def test_policy_by_epochs_ignores_accuracy() -> None:
    policy = SavePolicy(epochs=10, last_epoch=100)
    assert not policy.after_epoch(1, 0.9)
    assert policy.best == 0.9
    assert not policy.after_epoch(2, 0.8)
    assert policy.best == 0.9


def test_newest_of_equally_good_checkpoints_is_kept() -> None:
    equal = after_epochs({"step-1": 0.5, "step-2": 0.5, "step-3": 0.1})
    assert Retention(newest=1, best=True).kept(equal) == {"step-2", "step-3"}


class Steps:
    """Steps of given lengths on a separate clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.costs = StepCosts(lambda: self.now)

    def take(self, seconds: float, times: int = 1, *, beside: bool = False) -> None:
        for _ in range(times):
            self.now += seconds
            self.costs.step(beside=beside)


def test_write_cost_is_the_step_time_above_the_median() -> None:
    steps = Steps()
    steps.take(9.0)  # the first one waits for its images
    steps.take(0.1, 20)
    steps.take(5.0)  # something else delayed this one
    steps.take(0.15, 4, beside=True)
    steps.take(0.1, 3)
    assert steps.costs.take() == pytest.approx(4 * 0.05)
    assert steps.costs.take() == 0


def test_write_cost_is_unknown_without_usual_step_time() -> None:
    steps = Steps()
    steps.take(0.1, LEAST)  # the first of them is not timed
    steps.take(3.0, 2, beside=True)
    assert steps.costs.take() == 0
    steps.take(0.1)
    steps.take(3.0, beside=True)
    assert steps.costs.take() == pytest.approx(2.9)


def test_shorter_steps_during_write_are_no_gain() -> None:
    steps = Steps()
    steps.take(0.1, 20)
    steps.take(0.05, 3, beside=True)
    assert steps.costs.take() == 0


def test_first_step_of_epoch_and_copy_time_are_excluded() -> None:
    steps = Steps()
    steps.take(0.1, 20)
    steps.costs.interrupt()
    steps.take(60.0, beside=True)
    steps.now += 7.0
    steps.costs.resume()
    steps.take(0.3, beside=True)
    assert steps.costs.take() == pytest.approx(0.2)


def test_usual_step_time_follows_growing_batches() -> None:
    steps = Steps()
    steps.take(0.1, 200)
    steps.take(1.0, 200)
    steps.take(1.2, beside=True)
    assert steps.costs.take() == pytest.approx(0.2)
