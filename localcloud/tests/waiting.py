"""The one way in which tests wait for what must come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

import pytest

PATIENCE_S: Final = 300.0
"""So long that only a fault, not a busy machine, comes to the end of it."""
MIN_PAUSE_S: Final = 0.005

T = TypeVar("T")


def eventually(
    condition: Callable[[], T | None], timeout_s: float = PATIENCE_S, what: str | Callable[[], object] = ""
) -> T:
    """Return the first value of `condition` that is true; fail the test after `timeout_s` with what was waited for.

    The pause between two tries is as long as a try, so that a command is no load on what it waits for, and a look at a
    file notices at once. `what`: words, or a function that returns what there is instead.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        started = time.monotonic()
        if found := condition():
            return found
        if started >= deadline:
            pytest.fail(f"not within {timeout_s:g} s: {what() if callable(what) else what or condition}")
        time.sleep(max(MIN_PAUSE_S, time.monotonic() - started))
