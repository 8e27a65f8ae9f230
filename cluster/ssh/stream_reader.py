"""Read a blocking stream in the background."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from cluster.ssh.master import SilenceError

MAX_WAITING: Final = 32
"""Number of items to read ahead. A faster sender has to wait."""
_LOOK_S: Final = 1.0
"""Seconds between two checks whether the stream was abandoned, while the queue is full."""


T = TypeVar("T")


class BackgroundReader(Generic[T]):
    """Read a blocking stream in a thread, so that Ctrl-C and timeouts reach the caller immediately."""

    def __init__(self, source: Iterator[T], where: str = "") -> None:
        """Start to read `source` in a thread. `where` names the master in errors."""
        self._where = where
        self._is_abandoned = False
        self._queue: queue.Queue[T | BaseException | None] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._pump, args=(source,), daemon=True)
        self._thread.start()

    def _pump(self, source: Iterator[T]) -> None:
        """Move items from the source to the queue until the source ends or the stream is abandoned. Then close the
        source.

        None marks the end of the source in the queue. An error of the source is queued too, for `next` to raise.
        """
        try:
            for item in source:
                if not self._put(item):
                    return
            self._put(None)
        except BaseException as error:
            self._put(error)
        finally:
            if close := getattr(source, "close", None):
                close()  # a generator's clean-up must run in the thread that iterates it

    def _put(self, item: T | BaseException | None) -> bool:
        """Queue an item for the caller. Return False if the stream was abandoned."""
        while not self._is_abandoned:
            with contextlib.suppress(queue.Full):
                self._queue.put(item, timeout=_LOOK_S)
                return True
        return False

    def abandon(self) -> None:
        """End the stream at its next item and close it. Call this if no further item is read."""
        self._is_abandoned = True

    def next(self, timeout_s: float) -> T | None:
        """Wait for the next item and return it; None at the end. Do not call it again after the end or an error.

        Raises SilenceError after `timeout_s` seconds without an item, and the errors of the stream.
        """
        try:
            item = self._queue.get(timeout=timeout_s)
        except queue.Empty:
            raise SilenceError(
                f"the connection to the master timed out: nothing was received for {timeout_s:g} s",
                where=self._where,
                remedy="repeat the command",
            ) from None
        if isinstance(item, BaseException):
            raise item
        return item
