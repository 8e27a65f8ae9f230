"""Wait with a deadline, for a condition or for a child process to exit, with the standard library only."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar

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


def terminate(process: subprocess.Popen[Any], *, grace_s: float = 5.0) -> None:
    """Terminate a child process, and wait until it has exited. After `grace_s`, kill it."""
    process.terminate()
    try:
        process.wait(timeout=grace_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
