from __future__ import annotations

import pytest

from payload.training.checkpoints.step_costs import LEAST, StepCosts


class Steps:
    """Steps of given lengths on a clock of their own."""

    def __init__(self) -> None:
        self.now = 100.0
        self.costs = StepCosts(lambda: self.now)

    def take(self, seconds: float, times: int = 1, *, beside: bool = False) -> None:
        for _ in range(times):
            self.now += seconds
            self.costs.step(beside=beside)


def test_what_steps_beside_a_write_are_longer_than_the_median_alone_is_added_up_once() -> None:
    steps = Steps()
    steps.take(9.0)  # the first waits for its images
    steps.take(0.1, 20)
    steps.take(5.0)  # one that met something else
    steps.take(0.15, 4, beside=True)
    steps.take(0.1, 3)
    assert steps.costs.take() == pytest.approx(4 * 0.05)
    assert steps.costs.take() == 0


def test_nothing_is_said_where_the_usual_time_is_not_known() -> None:
    steps = Steps()
    steps.take(0.1, LEAST)  # the first of them is not timed
    steps.take(3.0, 2, beside=True)
    assert steps.costs.take() == 0
    steps.take(0.1)
    steps.take(3.0, beside=True)
    assert steps.costs.take() == pytest.approx(2.9)


def test_steps_that_are_shorter_beside_a_write_give_nothing_back() -> None:
    steps = Steps()
    steps.take(0.1, 20)
    steps.take(0.05, 3, beside=True)
    assert steps.costs.take() == 0


def test_the_first_step_of_an_epoch_and_what_a_copy_took_are_left_out() -> None:
    steps = Steps()
    steps.take(0.1, 20)
    steps.costs.interrupt()
    steps.take(60.0, beside=True)
    steps.now += 7.0
    steps.costs.resume()
    steps.take(0.3, beside=True)
    assert steps.costs.take() == pytest.approx(0.2)


def test_what_is_usual_follows_batches_that_grow() -> None:
    steps = Steps()
    steps.take(0.1, 200)
    steps.take(1.0, 200)
    steps.take(1.2, beside=True)
    assert steps.costs.take() == pytest.approx(0.2)
