"""Values that threads keep up to date while a page shows them. All threads share one SSH connection."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from agent.errors import describe
from cluster.errors import ConnectionFailedError, DeepcdkError
from cluster.terminal.wrap import printable

if TYPE_CHECKING:
    from cluster.runs.supervisor_client import Supervisor
    from cluster.session import Session

DRAWER: Final = concurrent.futures.ThreadPoolExecutor(max_workers=1)
"""Draws figures in the background, which takes seconds."""

T = TypeVar("T")

IDLE_S: Final = 15.0
"""Seconds without a look after which a source is not read any more."""
READ_LIMIT_S: Final = 15.0
"""Time limit for one read. A laptop that slept, or a lost network, leaves a connection that never answers."""
FAILURES_TO_RENEW: Final = 2
"""Consecutive failures after which the master is looked up again, because another one may have replaced it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen(Generic[T]):
    """The last value of a source. Before the first successful read, the value is None."""

    value: T | None = None
    at: float = 0.0
    """Unix time of the last successful read, on this machine's clock."""
    trouble: str = ""
    """Why the last read failed; "" if it succeeded."""
    state: str = "live"
    """live, reconnecting (no connection to the master) or failing."""


class Source(Generic[T]):
    """Read a value in a thread, with pauses of `pause_s` seconds. `look` returns the last value.

    The first `look` starts the thread, which exits after `idle_s` seconds without a further one. An error of `read` is
    not raised: `look` returns it as `Seen.trouble`, with the last value.
    """

    def __init__(self, read: Callable[[], T], *, pause_s: float, idle_s: float = IDLE_S) -> None:
        self._read, self._pause_s, self._idle_s = read, pause_s, idle_s
        self._lock, self._first = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._looked_at = 0.0
        self._seen: Seen[T] = Seen()

    def look(self, wait_s: float = 0.0) -> Seen[T]:
        """Return the last value with its time and trouble, and keep the thread running.

        Waits up to `wait_s` seconds for the first read of the thread.
        """
        with self._lock:
            self._looked_at = time.monotonic()
            if self._thread is None:
                self._first.clear()
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
        self._first.wait(wait_s)
        return self._seen

    def _run(self) -> None:
        while True:
            try:
                self._seen = Seen(value=self._read(), at=time.time())
            except Exception as error:  # show unexpected errors too, and continue to read
                text = str(error) if isinstance(error, DeepcdkError) else f"{type(error).__name__}: {describe(error)}"
                state = "reconnecting" if isinstance(error, ConnectionFailedError) else "failing"
                self._seen = dataclasses.replace(self._seen, trouble=printable(text), state=state)
            self._first.set()
            time.sleep(self._pause_s)
            with self._lock:
                if time.monotonic() - self._looked_at > self._idle_s:
                    self._thread = None
                    return


class Link:
    """One SSH connection for all sources. It is opened again if it breaks or does not answer within `limit_s`."""

    def __init__(self, open_session: Callable[[], Session], *, limit_s: float = READ_LIMIT_S) -> None:
        self._open_session, self._limit_s = open_session, limit_s
        self._lock = threading.Lock()
        self._opened: tuple[Session, Supervisor] | None = None
        self._failures = 0

    @contextlib.contextmanager
    def supervisor(self) -> Iterator[tuple[Session, Supervisor]]:
        """Provide the session and the supervisor for one read. The connection is opened if necessary. Raises
        DeepcdkError.

        If the read takes too long, the connection is closed, so that the read fails. The next command opens it again.
        After FAILURES_TO_RENEW failures in a row, the next read looks up the master again.
        """
        try:
            with self._lock:
                if self._opened is None:
                    session = self._open_session()
                    self._opened = session, session.supervisor(session.connect())
                opened = self._opened
            limit = threading.Timer(self._limit_s, opened[1].master.close)
            limit.daemon = True
            limit.start()
            try:
                yield opened
            finally:
                limit.cancel()
            self._failures = 0
        except ConnectionFailedError:
            self._failures += 1
            if self._failures >= FAILURES_TO_RENEW:
                self.close()
            raise

    def close(self) -> None:
        """Close the connection. The next read looks up the master again."""
        with self._lock:
            if self._opened:
                self._opened[1].master.close()
                self._opened = None


class Background(Generic[T]):
    """A value that takes seconds to compute, and is therefore computed in the background."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._future: concurrent.futures.Future[T] | None = None
        self._value: T | None = None
        self._of: object = None
        self._at = 0.0

    def last(self, of: object, compute: Callable[[], T], *, every_s: float = math.inf) -> T | None:
        """Return the value that was computed last; None before the first. If that failed, raise the error, once.

        Start to compute the value again if `of`, the data it depends on, has changed, if it is older than `every_s`, or
        after an error. The result is returned by a later call.
        """
        with self._lock:
            if self._future is None and (self._of != of or time.monotonic() - self._at > every_s):
                self._of, self._future = of, DRAWER.submit(compute)
            elif self._future is not None and self._future.done():
                done, self._future = self._future, None
                if done.exception():
                    self._of = None
                self._value, self._at = done.result(), time.monotonic()
            return self._value
