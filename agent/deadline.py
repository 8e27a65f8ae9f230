"""Wait for something with a deadline. Our own, since the nodes' own Python has the standard library alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def wait_until(condition: Callable[[], Value], *, timeout_s: float, poll_s: float) -> Value:
    """Call `condition` every `poll_s` until it is true; return its last value, a false one after `timeout_s`.

    It is called at least once, and once more at the deadline. What it raises passes.
    """
    deadline = time.monotonic() + timeout_s
    while not (value := condition()) and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(poll_s, left))
    return value
