"""Several files at once: reading waits for a shared file system, and hashing lets go of Python's lock."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

WORKERS: Final = 8
"""A shared file system wants many requests at once."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_unordered(work: Callable[[Item], Result], items: Sequence[Item], workers: int = WORKERS) -> Iterator[Result]:
    """Do work on several items at once; yield the results as they come, in any order.

    Where one fails, or the iterator is closed, what has not begun is left; the first error is raised once nobody works
    any more. A plain pool of the library's would bring imports of 20 ms, and lock three times for each item.
    """
    waiting = iter(items)
    taking = threading.Lock()
    done: queue.SimpleQueue[tuple[Result | None, BaseException | None, bool]] = queue.SimpleQueue()
    over = threading.Event()

    def run() -> None:
        try:
            while not over.is_set():
                with taking:
                    item = next(waiting, None)
                if item is None:
                    break
                done.put((work(item), None, False))
            done.put((None, None, True))
        except BaseException as error:
            over.set()
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
                yield result  # type: ignore[misc]  # what `work` returned
        if failure is not None:
            raise failure
    finally:
        over.set()
        for thread in threads:
            thread.join()
