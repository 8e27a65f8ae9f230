"""Long lines of a run's log. The log contains them in full; states, messages and views contain their beginning.

A line that is longer than MAX_LINE is stored as several lines (`agent.launch.output_lines.Lines`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MAX_LINE: Final = 1 << 16
"""Maximum bytes of a line. A longer line is stored in parts, so that an endless line takes no more memory."""
MAX_STORED: Final = 2000
"""Maximum characters of a line in a state or a message."""
MAX_SHOWN: Final = 1 << 14
"""Maximum characters of a line in a view that follows the log."""
SEPARATOR: Final = " | "
"""Separator of several lines that are joined into one, as in the reason for a failed preparation."""
WHOLE: Final = "`fab logs` prints all"
_MARK: Final = ">:"
"""End of the mark that begins each line of a rank, such as `[0]<stderr>:`."""
_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]+[0-~])")
"""Control sequences of terminals (ECMA-48): colors, cursor movements, titles, hyperlinks and character sets."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def without_controls(text: str) -> str:
    """Return a program's text without terminal control sequences and other control characters.

    Newlines and tabs stay. Reasons and last lines use this.
    """
    return _CONTROL.sub("", _SEQUENCE.sub("", text))


def shortened(line: str, most: int) -> str:
    """Return a line of at most `most` characters unchanged, else its first `most` and a note about `fab logs`."""
    return line if len(line) <= most else f"{line[:most]}... ({WHOLE})"


class LongLines:
    """Shorten the lines of a log, and leave out all parts of a long line but the first."""

    def __init__(self, most: int = MAX_STORED) -> None:
        """`most`: maximum characters of a line."""
        self._most = most
        self._open: set[str] = set()
        """Marks of the streams in which the next line continues a long line."""

    def shorten(self, lines: Iterable[str]) -> list[str]:
        """Return the next lines of the log. A line of more than `most` characters is cut by `shortened`.

        Of a long line that is stored in parts, only the first part is kept, also if the parts come in several calls.
        """
        found = []
        for line in lines:
            mark, has_mark, text = line.partition(_MARK) if line.startswith("[") else ("", "", line)
            is_part, is_full = mark in self._open, has_mark and len(text.encode(errors="replace")) >= MAX_LINE
            (self._open.add if is_full else self._open.discard)(mark)
            if not is_part:
                found.append(shortened(line, self._most))
        return found
