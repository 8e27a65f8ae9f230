"""Show on stderr what a task is doing while it prints nothing: a spinner on a terminal, else one plain line.

Steps that end within a second are not shown. After ten seconds a terminal also shows the step's duration.

The spinner uses rich's Live directly. rich's Status would redirect a task's stdout to stderr if stdout is not a
terminal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import getpass
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TextIO

from cluster.terminal.units import duration
from cluster.terminal.wrap import fitted, printable

QUIET_S: Final = 1.0
"""Seconds without output before the step is shown."""
AGAIN_S: Final = 10.0
"""Seconds between two plain lines, so that a log does not fill with them."""
CHECK_S: Final = 0.1
TIMED_S: Final = 10.0
"""Seconds before a terminal also shows the step's duration."""


@dataclasses.dataclass
class _Step:
    """A step, and whether a plain line may still be printed for it."""

    what: str
    plain: bool
    began: float


class StatusLine:
    """Show the current step if nothing has been printed for a while."""

    def __init__(self, stream: Callable[[], TextIO], clock: Callable[[], float] = time.monotonic) -> None:
        """`stream` returns the stream to show steps on. `clock` returns the time, s."""
        self._stream, self._clock = stream, clock
        self._lock = threading.RLock()
        self._steps: list[_Step] = []
        """Nested steps, the current one last."""
        self._last_output, self._delay_s = clock(), QUIET_S
        self._live: Any = None
        self._shown = ""
        self._displays = 0
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def doing(self, what: str, *, plain: bool = True) -> Iterator[None]:
        """Show a step during a block, once nothing has been printed for QUIET_S. The block may print only in `aside`.

        With `plain=False` the step is shown only on terminals, because the block itself reports what it waits for.
        """
        with self._lock:
            self._steps.append(_Step(what, plain, self._clock()))
            self.update()
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._steps.pop()
                if self._steps:
                    self._redraw()
                else:
                    self._hide()

    def now(self, what: str) -> None:
        """Replace the text of the current step. Do nothing if there is no step."""
        with self._lock:
            if self._steps:
                self._steps[-1].what = what
                self._redraw()

    def plain(self, text: str) -> None:
        """Print a line of progress, unless the stream is a terminal, which shows the current step instead."""
        with self._lock:
            if not self._is_live(self._stream()):
                self._print(text)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Hide the spinner during a block that prints. After the block, the wait for the next display starts again."""
        with self._lock:
            self._hide()
            try:
                yield
            finally:
                self._last_output, self._delay_s = self._clock(), QUIET_S

    def pause(self) -> None:
        """Show nothing until `resume`, because another display uses the terminal. Each call needs its own `resume`."""
        with self._lock:
            self._hide()
            self._displays += 1

    def resume(self) -> None:
        """Show steps again after another display has ended."""
        with self._lock:
            self._displays -= 1
            self._last_output = self._clock()

    def update(self) -> None:
        """Show the current step if nothing has been printed for too long. If the step is shown already, update its
        duration.
        """
        with self._lock:
            if self._live and self._text() != self._shown:
                self._redraw()
            is_silent = self._clock() - self._last_output >= self._delay_s
            if self._displays or not self._steps or self._live or not is_silent:
                return
            stream, step = self._stream(), self._steps[-1]
            if self._is_live(stream):
                self._show(stream)
            elif step.plain:
                step.plain = False
                self._print(step.what)

    @staticmethod
    def _is_live(stream: TextIO) -> bool:
        return stream.isatty() and os.environ.get("TERM") != "dumb"

    def _print(self, text: str) -> None:
        """Print a plain line and restart the wait for the next one. Errors of the stream are ignored."""
        self._last_output, self._delay_s = self._clock(), AGAIN_S
        with contextlib.suppress(OSError, ValueError):  # the stream is closed
            print(printable(text), file=self._stream(), flush=True)

    def _text(self) -> str:
        step = self._steps[-1]
        seconds = self._clock() - step.began
        return printable(step.what if seconds < TIMED_S else f"{step.what} ({duration(seconds)})")

    def _watch(self) -> None:
        """Update the line until there is no step. Runs in its own thread."""
        while True:
            time.sleep(CHECK_S)
            with self._lock:
                if not self._steps:
                    self._thread = None
                    return
                self.update()

    def _show(self, stream: TextIO) -> None:
        """Start the spinner on `stream`, which is a terminal."""
        from rich.console import Console
        from rich.live import Live

        console = Console(file=stream)
        # The task's output must stay on its own stream.
        self._live = Live(
            self._spinner(console.width),
            console=console,
            refresh_per_second=10,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start(refresh=True)

    def _spinner(self, columns: int) -> Any:
        """Build the spinner with the step's text, cut to the terminal's width."""
        from rich.spinner import Spinner
        from rich.text import Text

        self._shown = self._text()
        text = Text(self._shown)
        text.truncate(max(columns - 2, 1), overflow="ellipsis")  # the spinner takes two columns
        return Spinner("dots", text=text, style="cyan")

    def _redraw(self) -> None:
        if self._live is not None:
            self._live.update(self._spinner(self._live.console.width))

    def _hide(self) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()


@contextlib.contextmanager
def interruptible(text: str, report: Callable[[str], None]) -> Iterator[None]:
    """On Ctrl-C during the block, pass `text` to `report`, then raise KeyboardInterrupt. `text` describes what
    continues anyway.
    """
    try:
        yield
    except KeyboardInterrupt:
        report(text)
        raise


LINE: Final = StatusLine(lambda: sys.stderr)
"""The status line of this process."""
doing, now, plain, aside = LINE.doing, LINE.now, LINE.plain, LINE.aside


def ask_secret(question: str) -> str:
    """Ask for a secret on the terminal without echo. Return "" at the end of the input."""
    LINE.pause()
    try:
        return getpass.getpass(question)
    except EOFError:
        return ""
    finally:
        LINE.resume()


@functools.lru_cache(maxsize=1000)
def warn(text: str) -> None:
    """Print `warning: ` and the text on stderr. Each text is printed once, so that polling does not repeat it."""
    with aside():
        print(fitted(f"warning: {text}", sys.stderr), file=sys.stderr, flush=True)
