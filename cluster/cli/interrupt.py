"""Ctrl-C before a task has begun: Invoke would end then with status 1 and without a word."""

from __future__ import annotations

import signal
from typing import Final, NoReturn

from invoke.exceptions import Exit

STATUS: Final = 130
SAID: Final = "\ninterrupted"


def end_at_once() -> None:
    """End with the tasks' own words and status from now on, unless Ctrl-C is ignored, as behind a shell's `&`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def leave_to_task() -> None:
    """Raise KeyboardInterrupt again, for the tasks know what they have to take back."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> NoReturn:
    raise Exit(SAID, code=STATUS)
