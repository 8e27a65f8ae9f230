"""Waiting for a condition in tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

import pytest

PATIENCE_S: Final = 300.0
"""A timeout that is only reached because of a fault, not because of a busy machine."""
MIN_PAUSE_S: Final = 0.005

T = TypeVar("T")


def eventually(
    condition: Callable[[], T | None], timeout_s: float = PATIENCE_S, what: str | Callable[[], object] = ""
) -> T:
    """Return the first true value of `condition`. After `timeout_s`, fail the test with `what`.

    The pause between two attempts is as long as an attempt, so a slow condition causes little load, and a fast one is
    noticed soon. `what`: a description of the condition, or a function that returns the present state.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        started = time.monotonic()
        if found := condition():
            return found
        if started >= deadline:
            pytest.fail(f"not within {timeout_s:g} s: {what() if callable(what) else what or condition}")
        time.sleep(max(MIN_PAUSE_S, time.monotonic() - started))
