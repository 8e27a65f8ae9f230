"""Read a blocking stream in the background."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Final

MOST_WAITING: Final = 1000
"""Items that are read ahead: a far side that sends faster than they are used has to wait."""


class BackgroundReader:
    """Read a blocking stream in a thread, so that Ctrl-C and time-outs reach the caller at once."""

    def __init__(self, source: Iterator[str]) -> None:
        self._queue: queue.Queue[str | BaseException | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._pump, args=(source,), daemon=True)
        self._thread.start()

    def _pump(self, source: Iterator[str]) -> None:
        try:
            for item in source:
                self._queue.put(item)
            self._queue.put(None)
        except BaseException as error:
            self._queue.put(error)

    def next(self, timeout_s: float) -> str | None:
        """Return the next item, or None at the end. Raises queue.Empty on a time-out."""
        item = self._queue.get(timeout=timeout_s)
        if isinstance(item, BaseException):
            raise item
        return item
