from __future__ import annotations

from collections.abc import Iterator

import pytest

from payload.training.reporting import throughput as module
from payload.training.reporting.throughput import Clock, DataWait


class Time:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(module, "time", found)
    return found


def test_the_waits_for_batches_are_a_part_of_the_steps(fake: Time) -> None:
    def batches() -> Iterator[int]:
        for size in (4, 6):
            fake.now += 1.0
            yield size
        fake.now += 50.0  # after the last one nobody waits

    clock = Clock()
    taken = []
    for size in clock.awaited(batches()):
        fake.now += 3.0
        taken.append(clock.step(size))
    assert taken == [4.0, 4.0]
    assert (clock.seconds, clock.waited_s, clock.images) == (8.0, 2.0, 10)
    assert clock.images_per_s == pytest.approx(10 / 8)


def test_before_the_first_step_there_is_no_rate() -> None:
    clock = Clock()
    assert (clock.images_per_s, clock.waited_s) == (0.0, 0.0)


def test_the_rank_that_waited_longest_is_named() -> None:
    wait = DataWait.longest([0.1, 3.1, 0.2], ["m", "w1", "w2"], 10.0)
    assert (wait.rank, wait.host, wait.seconds) == (1, "w1", 3.1)
    assert wait.part == pytest.approx(0.31)
    assert wait.matters
    assert str(wait) == "31% of the time rank 1 (w1) waited for images"


@pytest.mark.parametrize(("seconds", "matters"), [(0.499, False), (0.5, True)])
def test_a_wait_matters_from_a_twentieth_of_the_time_on(seconds: float, matters: bool) -> None:
    assert DataWait.longest([seconds], ["m"], 10.0).matters == matters


def test_an_epoch_without_steps_waited_for_nothing() -> None:
    assert DataWait.longest([0.0, 0.0], ["a", "b"], 0.0).part == 0.0
