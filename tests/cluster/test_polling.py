"""Polling until a condition is true, and calls in the background."""

from __future__ import annotations

import threading

import pytest

from cluster.polling import in_background, poll


def test_polling_checks_immediately_and_once_after_timeout(slept: list[float]) -> None:
    assert list(poll(2.5, every_s=1.0)) == [0.0, 1.0, 2.0, 3.0]
    assert slept == [1.0, 1.0, 1.0]
    assert list(poll(0.0, every_s=1.0)) == [0.0]
    assert len(slept) == 3


def test_background_call_returns_its_result_or_raises_its_error() -> None:
    gate = threading.Event()
    future = in_background(lambda: gate.wait(60) and "there")
    gate.set()
    assert future.result() == "there"
    with pytest.raises(ValueError, match="invalid literal"):
        in_background(lambda: int("x")).result()
