"""Split the output of ranks into labeled lines, and write whole lines to pipes."""

from __future__ import annotations

import array
import fcntl
import os
import re
import select
import stat
import termios
import time
from collections.abc import Callable, Sequence
from typing import Final

from agent.spec.long_lines import MAX_LINE

PIECE: Final = 4096
"""Bytes that mpirun's daemon reads at once. Whole lines up to this size are one message, and stay together."""
LINE_END: Final = re.compile(rb"(\r\n|\n|\r|\x1b\[[01]?G|\x1b\[\d{0,2}A)")
"""The end of a line or of a state of a progress bar. Some bars move to column 1 instead of writing a carriage return.
tqdm moves up after it has written a bar below another one.
"""
_PARTIAL: Final = re.compile(rb"(?:\r|\x1b(?:\[\d{0,2})?)$")
"""The beginning of an end that is complete only in the next block."""
_BLANK: Final = re.compile(rb"(?:[\b\t ]|\x1b\[[0-9;?]*[A-Za-z])*")
"""Text that erases a progress bar: blanks, backspaces and terminal control sequences."""
BAR_S: Final = 10.0
"""Seconds between two states of a progress bar that are forwarded as lines."""
DRAIN_S: Final = 0.001
"""Interval of checks whether the reader of a pipe has read everything."""


class Lines:
    """Split a stream into lines, each with a label.

    A progress bar overwrites its state with carriage returns. Its last state becomes a line. Before that, one state
    becomes a line every BAR_S seconds.
    """

    def __init__(self, mark: bytes, max_bytes: int = MAX_LINE, clock: Callable[[], float] = time.monotonic) -> None:
        self._mark, self._max_bytes, self._clock, self._rest = mark, max_bytes, clock, b""
        self._state = b""
        """The last state of a progress bar that has not been returned as a line."""
        self._shown_at = float("-inf")
        self._is_above = False
        """Whether the cursor has moved up, so that a line feed without text moves down again."""

    def feed(self, block: bytes) -> list[bytes]:
        """Add the next part of the stream, and return the lines that are now complete.

        Each has its label and a line feed. A line that is too long is returned in parts of `max_bytes`, each as its own
        line. Of a progress bar, only states that are due are returned.
        """
        text = self._rest + block
        held = found[0] if (found := _PARTIAL.search(text)) else b""
        *complete, self._rest = LINE_END.split(text.removesuffix(held))
        ready = list[bytes]()
        for line, end in zip(complete[::2], complete[1::2], strict=True):
            full, last = self._cut(line)
            ready += [*full, *self._collapsed(last, end)]
        full, self._rest = self._cut(self._rest)
        self._rest += held
        return [self._mark + line + b"\n" for line in (*ready, *full)]

    def _cut(self, line: bytes) -> tuple[list[bytes], bytes]:
        """Return the full parts of a line, and the remaining part."""
        most = self._max_bytes
        full = (len(line) - 1) // most * most if line else 0
        return [line[at : at + most] for at in range(0, full, most)], line[full:]

    def _collapsed(self, text: bytes, end: bytes) -> list[bytes]:
        """Return the line `text`, or the state of a progress bar if that is due; at most one item.

        `end` is the line end after the text: it shows which of the two the text is. A state that is not due is kept
        until the next one, or until the line ends.
        """
        is_blank = bool(_BLANK.fullmatch(text))
        is_up, was_above = end.endswith(b"A"), self._is_above
        self._is_above = is_up or (was_above and is_blank and end not in (b"\n", b"\r\n"))
        if end == b"\r" or end.startswith(b"\x1b") or (was_above and is_blank and end):
            self._state = self._state if is_blank else text.rstrip(b"\b")  # Keras ends a state with backspaces
            return self._due()
        text, self._state = (self._state or text) if is_blank else text, b""
        return [text]

    def _due(self) -> list[bytes]:
        """Return the last state of a progress bar if BAR_S have passed since the previous one; otherwise []."""
        now = self._clock()
        if not self._state or now - self._shown_at < BAR_S:
            return []
        self._shown_at, state, self._state = now, self._state, b""
        return [state]

    def idle(self) -> list[bytes]:
        """Return the state of a progress bar, as a line, if it is due; otherwise [].

        Call this while the stream is silent.
        """
        return [self._mark + line + b"\n" for line in self._due()]

    def end(self) -> list[bytes]:
        """Return the rest of a stream that has ended, as a line with its label; [] if nothing is left."""
        rest, self._rest = self._rest.removesuffix(b"\r"), b""
        lines = self._collapsed(rest, b"") if rest or self._state else []
        return [self._mark + line + b"\n" for line in lines]


def pieces(lines: Sequence[bytes]) -> list[bytes]:
    """Join lines into pieces of at most PIECE bytes. A longer line is its own piece."""
    found: list[bytes] = []
    for line in lines:
        if found and len(found[-1]) + len(line) <= PIECE:
            found[-1] += line
        else:
            found.append(line)
    return found


def check_read(descriptor: int) -> None:
    """Raise BrokenPipeError if a pipe has no reader any more."""
    poll = select.poll()
    poll.register(descriptor, 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise BrokenPipeError("the process that reads the output has exited")


def unread(descriptor: int) -> int:
    """Return the number of unread bytes in a pipe; 0 for other files.

    Raises BrokenPipeError if a pipe has no reader.
    """
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return 0
    check_read(descriptor)
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


def write(descriptor: int, lines: Sequence[bytes]) -> None:
    """Write lines to a pipe such that a reader of PIECE bytes never gets part of a line. Waits for the reader.

    Raises BrokenPipeError if the pipe has no reader any more.
    """
    for piece in pieces(lines):
        while unread(descriptor):
            time.sleep(DRAIN_S)
        write_all(descriptor, piece)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`, also if the file takes only a part of it at once. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
