"""Stragglers: reported once, after the others have waited for two windows, until they keep up."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from payload.training.reporting.stragglers import SLOW_RATIO, WINDOW_S, WINDOW_STEPS, Straggler, StragglerWatch

HOSTS = ("worker1", "worker1", "worker2", "worker3")


def begun(hosts: Sequence[str] = HOSTS, step_s: float = 1.0) -> StragglerWatch:
    """Return a watch that has seen only the first step of an epoch, without a duration."""
    watch = StragglerWatch(hosts)
    assert watch.step((0.0,) * len(hosts), step_s) == []
    return watch


def window(watch: StragglerWatch, own_s: Sequence[float], step_s: float = 1.0) -> list[Straggler]:
    """Take the steps of one window; return the result of the last step."""
    found: list[Straggler] = []
    for _ in range(max(WINDOW_STEPS, round(WINDOW_S / step_s))):
        assert not found
        found = watch.step(own_s, step_s)
    return found


def test_straggler_is_reported_once_after_two_windows() -> None:
    watch, slow = begun(), (0.4, 0.4, 0.9, 0.5)
    assert window(watch, slow) == []
    (found,) = window(watch, slow)
    assert (found.rank, found.host, found.is_over) == (2, "worker2", False)
    assert str(found) == (
        "rank 2 (worker2) is a straggler: its own part of a step takes 900 ms, 2.2 times the median, "
        "and the others wait for it 50% of the time; if this lasts: `fab replace worker2 --force`, then `fab resume`"
    )
    assert [window(watch, slow) for _ in range(3)] == [[], [], []]


def test_recovered_straggler_is_reported_after_two_windows() -> None:
    watch, slow, even = begun(), (0.4, 0.4, 0.9, 0.5), (0.4,) * 4
    assert [bool(window(watch, own)) for own in (slow, slow, even, slow, even)] == [False, True, False, False, False]
    (over,) = window(watch, even)
    assert (over.rank, over.is_over, str(over)) == (2, True, "rank 2 (worker2) keeps up with the others again")
    assert [bool(window(watch, slow)) for _ in range(2)] == [False, True]


def test_slow_single_window_is_no_straggler() -> None:
    watch = begun()
    for own in ((0.4, 0.4, 0.9, 0.4), (0.4, 0.4, 0.4, 0.9), (0.4, 0.4, 0.9, 0.4)):
        assert window(watch, own) == []


@pytest.mark.parametrize(
    ("own_s", "named"),
    [
        ((0.4, 0.4, 0.4, SLOW_RATIO * 0.4 - 0.001), []),
        ((0.4, 0.4, 0.4, SLOW_RATIO * 0.4 + 0.001), [3]),
        ((0.04, 0.04, 0.04, 0.13), []),  # 3.2 times as slow, but only 9% of the step
        ((0.9, 0.4, 0.4, 0.9), [0, 3]),
        ((0.2, 0.9, 0.9, 0.9), []),  # a quick rank does not make the others slow
    ],
)
def test_straggler_is_found_by_median_and_waiting_ranks(own_s: Sequence[float], named: list[int]) -> None:
    watch = begun()
    window(watch, own_s)
    assert [each.rank for each in window(watch, own_s)] == named


def test_slower_of_two_ranks_is_compared_with_the_faster() -> None:
    watch = begun(("worker1", "worker2"))
    window(watch, (0.9, 0.5))
    assert [each.rank for each in window(watch, (0.9, 0.5))] == [0]


def test_short_steps_are_added_up_and_long_ones_counted() -> None:
    watch = begun(("worker1", "worker2"), 1 / 128)
    steps = round(2 * WINDOW_S * 128)
    assert not any(watch.step((0.001, 0.006), 1 / 128) for _ in range(steps - 1))
    assert watch.step((0.001, 0.006), 1 / 128)
    long = begun(("worker1", "worker2"), 60.0)
    assert [bool(long.step((10.0, 50.0), 60.0)) for _ in range(2 * WINDOW_STEPS)] == [False] * 9 + [True]


@pytest.mark.parametrize(("first_s", "named"), [(0.24, []), (0.25, [1])])
def test_part_is_compared_with_its_step(first_s: float, named: list[int]) -> None:
    """In epochs of two steps, only the first step has a longer part; no later step reports the last one."""
    watch, found = StragglerWatch(("worker1", "worker2")), []
    for _ in range(60):
        found += watch.step((0.0, 0.0), 1.0)
        found += watch.step((0.15, first_s), 1000.0)  # the second step takes long, and its parts are unknown
    assert [each.rank for each in found] == named


def test_straggler_stays_one_if_the_allreduce_becomes_slower() -> None:
    watch, slow = begun(), (0.4, 0.4, 0.9, 0.5)
    assert [bool(window(watch, slow)) for _ in range(2)] == [False, True]
    assert [window(watch, slow, 10.0) for _ in range(4)] == [[], [], [], []]


def test_nothing_is_reported_without_data_of_ranks() -> None:
    alone, two = StragglerWatch(("worker1",)), StragglerWatch(("worker1", "worker2"))
    assert not any(alone.step((), 10.0) or two.step((0.0, 0.0), 10.0) for _ in range(50))
    assert not any(window(begun(), own_s) for own_s in ((0.0, 0.0, 0.0, 0.5), (-0.5, -0.1, 0.0, 0.5)) for _ in range(3))
