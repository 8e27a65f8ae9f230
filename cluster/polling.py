"""Wait: poll until a state has changed, or call a function in the background.

Not stamina, which repeats calls that raise; its import also takes 0.11 s of the 0.45 s that `fab --list` may take.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from time import monotonic, sleep
from typing import TypeVar

T = TypeVar("T")


def poll(timeout_s: float, *, every_s: float) -> Iterator[float]:
    """Yield the seconds passed: 0 at first, then after each pause, for the last time once `timeout_s` is over."""
    began, passed_s = monotonic(), 0.0
    while True:
        yield passed_s
        if passed_s >= timeout_s:
            return
        sleep(every_s)
        passed_s = monotonic() - began


def in_background(call: Callable[[], T]) -> Future[T]:
    """Start a call in a daemon thread, and return its future.

    Python waits at exit for the threads of a ThreadPoolExecutor, even if a task ends without the result.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
