from __future__ import annotations

import time

import pytest

from tests.waiting import eventually


def test_first_true_value_is_returned_immediately() -> None:
    tries = iter([0, "", [], "found", "too late"])
    assert eventually(lambda: next(tries)) == "found"
    assert next(tries) == "too late"


def test_condition_is_tried_once_more_after_timeout() -> None:
    assert eventually(lambda: "there", timeout_s=0) == "there"


@pytest.mark.parametrize("what", ["the ship", lambda: "the ship"])
def test_timeout_is_reported_with_name_of_condition(what: object) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"not within 0\.02 s: the ship"):
        eventually(lambda: False, 0.02, what)  # type: ignore[arg-type]


def test_slow_condition_gets_half_of_the_time() -> None:
    tries = []

    def look() -> bool:
        tries.append(time.monotonic())
        time.sleep(0.05)
        return len(tries) == 3

    eventually(look)
    assert tries[-1] - tries[0] >= 4 * 0.05
