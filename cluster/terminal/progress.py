"""How far a piece of work is: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from cluster.terminal.status_line import LINE
from cluster.terminal.units import amount

EVERY_S: Final = 5.0
"""Seconds between two plain lines."""


class Gauge(Protocol):
    """Show one piece of work after another."""

    def begin(self, what: str, files: int, size: int) -> None:
        """Begin with a piece of so many files and bytes."""

    def at(self, files: int, size: int) -> None:
        """Say how much of it is done."""

    def note(self, text: str) -> None:
        """Print a remark."""

    def __enter__(self) -> Gauge: ...

    def __exit__(self, *_: object) -> None: ...


class PlainGauge:
    """Print a line at the begin of each piece, and how far it is when it takes long."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._what, self._files, self._size, self._told = "", 0, 0, 0.0

    def begin(self, what: str, files: int, size: int) -> None:
        self._what, self._files, self._size, self._told = what, files, size, self._clock()
        self._write(f"{what}: {files:,} files, {amount(size)}")

    def at(self, files: int, size: int) -> None:
        if self._clock() - self._told >= EVERY_S:
            self._told = self._clock()
            self._write(f"{self._what}: {files:,} of {self._files:,} files, {amount(size)} of {amount(self._size)}")

    def note(self, text: str) -> None:
        self._write(text)

    def __enter__(self) -> PlainGauge:
        return self

    def __exit__(self, *_: object) -> None:
        return


class LiveGauge:
    """Keep a bar up to date, one for each piece."""

    def __init__(self) -> None:
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
        self._progress.console.print(text, markup=False, highlight=False)

    def _end(self) -> None:
        if self._task is not None:
            self._progress.update(self._task, completed=self._size)

    def __enter__(self) -> LiveGauge:
        LINE.give_way()
        self._progress.start()
        return self

    def __exit__(self, *failure: object) -> None:
        if not any(failure):
            self._end()
        self._progress.stop()
        LINE.take_over()


def make(*, terminal: bool, write: Callable[[str], None]) -> LiveGauge | PlainGauge:
    """Make the gauge that fits."""
    return LiveGauge() if terminal else PlainGauge(write)
