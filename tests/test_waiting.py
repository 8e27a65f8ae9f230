from __future__ import annotations

import time

import pytest

from tests.waiting import eventually


def test_the_first_true_value_is_returned_at_once() -> None:
    tries = iter([0, "", [], "found", "too late"])
    assert eventually(lambda: next(tries)) == "found"
    assert next(tries) == "too late"


def test_a_condition_is_tried_once_more_when_the_time_is_over() -> None:
    assert eventually(lambda: "there", timeout_s=0) == "there"


@pytest.mark.parametrize("what", ["the ship", lambda: "the ship"])
def test_what_never_comes_fails_by_its_name(what: object) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"not within 0\.02 s: the ship"):
        eventually(lambda: False, 0.02, what)  # type: ignore[arg-type]


def test_a_condition_that_takes_long_gets_half_of_the_time() -> None:
    tries = []

    def look() -> bool:
        tries.append(time.monotonic())
        time.sleep(0.05)
        return len(tries) == 3

    eventually(look)
    assert tries[-1] - tries[0] >= 4 * 0.05
