"""Facts about polling: it looks at once, pauses between two looks, and looks once more when the time is over."""

from __future__ import annotations

from cluster.polling import poll


def test_the_first_look_is_at_once_and_the_last_one_when_the_time_is_over(slept: list[float]) -> None:
    assert list(poll(2.5, every_s=1.0)) == [0.0, 1.0, 2.0, 3.0]
    assert slept == [1.0, 1.0, 1.0]


def test_without_any_time_there_is_one_look_and_no_pause(slept: list[float]) -> None:
    assert list(poll(0.0, every_s=1.0)) == [0.0]
    assert slept == []
