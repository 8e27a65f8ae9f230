"""Wait: poll until a state has changed, call a function in the background, or terminate a child process.

stamina is not used, because it repeats calls that raise. Its import would take 0.11 s of the 0.45 s allowed for `fab
--list`.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from time import monotonic, sleep
from typing import Any, TypeVar

T = TypeVar("T")


def poll(timeout_s: float, *, every_s: float) -> Iterator[float]:
    """Yield the elapsed seconds: first 0, then after each pause of `every_s`, and a last time after `timeout_s`."""
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


def terminate(process: subprocess.Popen[Any], *, grace_s: float = 5.0) -> None:
    """Terminate a child process, and wait until it has exited. After `grace_s`, kill it."""
    process.terminate()
    try:
        process.wait(timeout=grace_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
