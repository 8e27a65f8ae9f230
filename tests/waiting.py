"""Wait for a condition: the one helper that all tests use."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

import pytest

PATIENCE_S: Final = 300.0
"""Long enough that only a fault exceeds it, never a busy machine."""
MIN_PAUSE_S: Final = 0.005

T = TypeVar("T")


def eventually(
    condition: Callable[[], T | None], timeout_s: float = PATIENCE_S, what: str | Callable[[], object] = ""
) -> T:
    """Return the first true value of `condition`; fail the test after `timeout_s`, with a description of the condition.

    The pause after an attempt lasts as long as the attempt, so slow commands cause little load and cheap checks of a
    file respond immediately. `what`: the description, or a function that returns the current situation.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        started = time.monotonic()
        if found := condition():
            return found
        if started >= deadline:
            pytest.fail(f"not within {timeout_s:g} s: {what() if callable(what) else what or condition}")
        time.sleep(max(MIN_PAUSE_S, time.monotonic() - started))
