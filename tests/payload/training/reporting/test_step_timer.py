from __future__ import annotations

from collections.abc import Iterator

import pytest

from payload.training.reporting import step_timer as module
from payload.training.reporting.step_timer import DataWait, StepTimer


class Time:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(module, "time", found)
    return found


def test_waits_for_batches_are_a_part_of_the_steps(fake: Time) -> None:
    def batches() -> Iterator[int]:
        for size in (4, 6):
            fake.now += 1.0
            yield size
        fake.now += 50.0  # nobody waits after the last one

    timer = StepTimer()
    taken = []
    for size in timer.awaited(batches()):
        fake.now += 3.0
        taken.append(timer.step(size))
    assert taken == [4.0, 4.0]
    assert (timer.seconds, timer.waited_s, timer.images) == (8.0, 2.0, 10)
    assert timer.images_per_s == pytest.approx(10 / 8)


def test_before_the_first_step_there_is_no_rate() -> None:
    timer = StepTimer()
    assert (timer.images_per_s, timer.waited_s) == (0.0, 0.0)


def test_rank_with_longest_wait_is_named() -> None:
    wait = DataWait.longest([0.1, 3.1, 0.2], ["m", "w1", "w2"], 10.0)
    assert (wait.rank, wait.host, wait.seconds) == (1, "w1", 3.1)
    assert wait.fraction == pytest.approx(0.31)
    assert wait.matters
    assert str(wait) == "31% of the time rank 1 (w1) waited for images"


@pytest.mark.parametrize(("seconds", "matters"), [(0.499, False), (0.5, True)])
def test_waits_above_a_twentieth_of_the_time_matter(seconds: float, matters: bool) -> None:
    assert DataWait.longest([seconds], ["m"], 10.0).matters == matters


def test_epoch_without_steps_waited_for_nothing() -> None:
    assert DataWait.longest([0.0, 0.0], ["a", "b"], 0.0).fraction == 0.0
