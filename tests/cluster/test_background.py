"""Facts about calls in the background: the result is waited for, and an error is raised with it."""

from __future__ import annotations

import threading

import pytest

from cluster.background import in_background


def test_a_result_is_waited_for() -> None:
    gate = threading.Event()
    future = in_background(lambda: gate.wait(60) and "there")
    gate.set()
    assert future.result() == future.result() == "there"


def test_an_error_is_raised_with_the_result() -> None:
    future = in_background(lambda: int("x"))
    with pytest.raises(ValueError, match="invalid literal"):
        future.result()
