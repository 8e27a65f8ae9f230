"""Fold text for a terminal between words; words and commands in backticks stay in one piece."""

from __future__ import annotations

import re
import shutil
import textwrap
from typing import Final, TextIO

_SPAN: Final = re.compile(r"`[^`\n]*`")
_GLUE: Final = "\0"
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_STYLES: Final = re.compile(r"\x1b\[[0-9;:]*m")
"""Select Graphic Rendition (ECMA-48, 8.3.117): colours and weights."""


def fold(text: str, columns: int) -> str:
    """Fold each line to so many columns, with further lines indented by two. A longer word is not broken."""
    return "\n".join(_fold(line, columns) for line in text.split("\n"))


def _fold(line: str, columns: int) -> str:
    if len(line) <= columns:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    glued = _SPAN.sub(lambda span: span[0].replace(" ", _GLUE), line.strip())
    folded = textwrap.wrap(
        glued,
        columns,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(folded).replace(_GLUE, " ")


def printable(text: str) -> str:
    """Return a text with its control characters escaped, as `\\x1b`; ends of lines and tabs stay.

    Some text comes from the nodes, and could otherwise change what is on the terminal. Characters that change the
    direction of text are escaped too.
    """
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))


def output_lines(text: str, stream: TextIO) -> list[str]:
    """Return a line of a node's output as the lines to print: on a terminal none has a control character.

    There colours are dropped, a carriage return, as of a progress bar, ends a line, and all other control characters
    are escaped, those of hyperlinks and titles too. A pipe or a file gets the line as it came.
    """
    if not stream.isatty():
        return [text]
    parts = [part for part in _STYLES.sub("", text).split("\r") if part]
    return printable("\n".join(parts)).split("\n")


def fitted(text: str, stream: TextIO) -> str:
    """Return a printable text, folded if the stream is a terminal."""
    text = printable(text)
    return fold(text, shutil.get_terminal_size().columns) if stream.isatty() else text
