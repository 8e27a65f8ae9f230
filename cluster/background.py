"""Call a function in a daemon thread, whose result is wanted later.

Not a ThreadPoolExecutor: Python waits for its threads at exit, also when a task ends without the result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_background(call: Callable[[], T]) -> Future[T]:
    """Start a call; the future has its result, or raises what it raised."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
