"""Progress of a long transfer: a rich progress bar on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from cluster.terminal.status_line import LINE
from cluster.terminal.units import amount
from cluster.terminal.wrap import printable

EVERY_S: Final = 5.0
"""Seconds between two plain lines."""


class PlainProgress:
    """Pass a line to `write` at the start of each step, and further lines, EVERY_S apart, if the step takes long."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._what, self._files, self._size, self._printed = "", 0, 0, 0.0

    def begin(self, what: str, files: int, size: int) -> None:
        self._what, self._files, self._size, self._printed = what, files, size, self._clock()
        self._write(f"{what}: {files:,} files, {amount(size)}")

    def at(self, files: int, size: int) -> None:
        if self._clock() - self._printed >= EVERY_S:
            self._printed = self._clock()
            self._write(f"{self._what}: {files:,} of {self._files:,} files, {amount(size)} of {amount(self._size)}")

    def note(self, text: str) -> None:
        self._write(text)

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(self, *_: object) -> None:
        return


class BarProgress:
    """Show a progress bar for each step on stdout, which must be a terminal. The status line is hidden meanwhile."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(),
        )
        self._task: Any = None
        self._size = 0

    def begin(self, what: str, files: int, size: int) -> None:
        self._end()
        self._size = size
        self._task = self._progress.add_task(f"{what}, {files:,} files", total=size)

    def at(self, files: int, size: int) -> None:
        self._progress.update(self._task, completed=size)

    def note(self, text: str) -> None:
        self._progress.console.print(printable(text), markup=False, highlight=False)

    def _end(self) -> None:
        if self._task is not None:
            self._progress.update(self._task, completed=self._size)

    def __enter__(self) -> BarProgress:
        LINE.pause()
        self._progress.start()
        return self

    def __exit__(self, *failure: object) -> None:
        if not any(failure):
            self._end()
        self._progress.stop()
        LINE.resume()


ProgressDisplay = BarProgress | PlainProgress
"""A display for consecutive steps, in a `with` block. `begin` starts a step with its number of files and bytes, `at`
shows how many of them are done, `note` prints a note.
"""


def make(*, terminal: bool, write: Callable[[str], None]) -> ProgressDisplay:
    """Return a progress bar if `terminal` is set, else a display that passes plain lines to `write`."""
    return BarProgress() if terminal else PlainProgress(write)
