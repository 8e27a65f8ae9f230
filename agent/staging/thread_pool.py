"""Process several files concurrently. Reads wait for a shared file system, and hashing releases the GIL."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

WORKERS: Final = 8
"""Number of threads. A shared file system is fastest with many concurrent requests."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_unordered(work: Callable[[Item], Result], items: Sequence[Item], workers: int = WORKERS) -> Iterator[Result]:
    """Call `work` on the items in threads; yield the results in the order of completion.

    After an error, or after the iterator is closed, no further item is started. The first error is raised after all
    threads have exited. None is not a valid item. This replaces concurrent.futures, which takes 20 ms to import and
    three locks per item.
    """
    remaining = iter(items)
    lock = threading.Lock()
    done: queue.SimpleQueue[tuple[Result | None, BaseException | None, bool]] = queue.SimpleQueue()
    stopped = threading.Event()

    def run() -> None:
        try:
            while not stopped.is_set():
                with lock:
                    item = next(remaining, None)
                if item is None:
                    break
                done.put((work(item), None, False))
            done.put((None, None, True))
        except BaseException as error:
            stopped.set()
            done.put((None, error, True))

    threads = [threading.Thread(target=run, daemon=True) for _ in range(min(workers, len(items)))]
    for thread in threads:
        thread.start()
    working, failure = len(threads), None
    try:
        while working:
            result, error, is_last = done.get()
            working -= is_last
            failure = failure or error
            if not is_last and failure is None:
                yield result  # type: ignore[misc]  # the result of `work`
        if failure is not None:
            raise failure
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
