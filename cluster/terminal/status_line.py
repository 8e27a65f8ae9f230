"""What a task is doing while it says nothing, told on stderr alone: a spinner on a terminal, else one plain line.

Nothing is told of what is over within a second.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TextIO

from cluster.terminal.wrap import fitted

QUIET_S: Final = 1.0
"""After so long without a word a task says what it is doing."""
AGAIN_S: Final = 10.0
"""After so long another plain line may follow the one before: a log is no place to be kept up to date."""
LOOK_S: Final = 0.1


class StatusLine:
    """Tell what is being done, once nothing was said for a while."""

    def __init__(self, stream: Callable[[], TextIO], clock: Callable[[], float] = time.monotonic) -> None:
        """`stream` returns where it is told."""
        self._stream, self._clock = stream, clock
        self._lock = threading.RLock()
        self._doing: list[str] = []
        self._told: list[bool] = []
        """For each of what is being done, whether a plain line has told it."""
        self._spoke_at, self._patience_s = clock(), QUIET_S
        self._live: Any = None
        self._displays = 0
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def doing(self, what: str, *, plain: bool = True) -> Iterator[None]:
        """Be doing something, for the time of a block that says nothing but through `aside`.

        Without `plain` it is told on terminals alone: the block says by itself what it waits for.
        """
        with self._lock:
            self._doing.append(what)
            self._told.append(not plain)
            self.look()
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._doing.pop()
                self._told.pop()
                if self._doing:
                    self._retell()
                else:
                    self._hide()

    def now(self, what: str) -> None:
        """Say more closely what is being done within the innermost block."""
        with self._lock:
            if self._doing:
                self._doing[-1] = what
                self._retell()

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Step aside for the time of a block that prints."""
        with self._lock:
            self._hide()
            try:
                yield
            finally:
                self._spoke_at, self._patience_s = self._clock(), QUIET_S

    def give_way(self) -> None:
        """Be silent while a display of the task's own holds the terminal, until `take_over`."""
        with self._lock:
            self._hide()
            self._displays += 1

    def take_over(self) -> None:
        """Tell again, for a display has ended."""
        with self._lock:
            self._displays -= 1
            self._spoke_at = self._clock()

    def look(self) -> None:
        """Tell what is being done where nothing was said for too long."""
        with self._lock:
            if (
                self._displays
                or not self._doing
                or self._live is not None
                or self._clock() - self._spoke_at < self._patience_s
            ):
                return
            stream = self._stream()
            if stream.isatty() and os.environ.get("TERM") != "dumb":
                self._show(stream)
            elif not self._told[-1]:
                self._told[-1] = True
                self._spoke_at, self._patience_s = self._clock(), AGAIN_S
                with contextlib.suppress(OSError, ValueError):  # Nobody listens any more.
                    print(self._doing[-1], file=stream, flush=True)

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK_S)
            with self._lock:
                if not self._doing:
                    self._thread = None
                    return
                self.look()

    def _show(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        # What is printed meanwhile goes where it is printed to, which is not here.
        self._live = Live(
            self._spinner(),
            console=Console(file=stream),
            refresh_per_second=10,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start(refresh=True)

    def _spinner(self) -> Any:
        from rich.spinner import Spinner
        from rich.text import Text

        return Spinner("dots", text=Text(self._doing[-1]), style="cyan")

    def _retell(self) -> None:
        if self._live is not None:
            self._live.update(self._spinner())

    def _hide(self) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()


@contextlib.contextmanager
def interruptible(then: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Tell on Ctrl-C in the block what goes on without it."""
    try:
        yield
    except KeyboardInterrupt:
        tell(then)
        raise


LINE: Final = StatusLine(lambda: sys.stderr)
"""That of this process's task."""
doing, now, aside = LINE.doing, LINE.now, LINE.aside


@functools.lru_cache(maxsize=1000)
def warn(text: str) -> None:
    """Print a warning on stderr, each text once: what a task polls brings the same one in each round."""
    with aside():
        print(fitted(f"warning: {text}", sys.stderr), file=sys.stderr, flush=True)
