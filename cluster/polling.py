"""Wait: poll until a state has changed, or call a function in the background.

stamina is not used, because it repeats calls that raise. Its import would take 0.11 s of the 0.45 s allowed for `fab
--list`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from time import monotonic, sleep
from typing import TypeVar

T = TypeVar("T")


def poll(timeout_s: float, *, every_s: float) -> Iterator[float]:
    """Yield the elapsed seconds: first 0, then after each pause of `every_s`, until a value is `timeout_s` or more.

    The loop then ends without an error, so the code after it handles the timeout.
    """
    began, passed_s = monotonic(), 0.0
    while True:
        yield passed_s
        if passed_s >= timeout_s:
            return
        sleep(every_s)
        passed_s = monotonic() - began


def in_background(call: Callable[[], T]) -> Future[T]:
    """Start a call in a daemon thread, and return a future with its result or its error.

    A ThreadPoolExecutor is not used, because Python waits for its threads at exit, even if a task ends without the
    result.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
