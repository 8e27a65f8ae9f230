"""Wait for a condition with a deadline, with the standard library only."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def wait_until(condition: Callable[[], Value], *, timeout_s: float, poll_s: float) -> Value:
    """Call `condition` every `poll_s` until its result is true, or until `timeout_s` have passed.

    Returns the last result, which is false after a timeout. `condition` is called at least once, and once more at the
    deadline. Its exceptions propagate.
    """
    deadline = time.monotonic() + timeout_s
    while not (value := condition()) and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(poll_s, left))
    return value
