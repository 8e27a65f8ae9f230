"""Fold text for a terminal between words. Words and commands in backticks are not broken."""

from __future__ import annotations

import re
import shutil
import textwrap
from typing import Final, TextIO

from cluster.cli import COMMAND

_SPAN: Final = re.compile(r"`[^`\n]*`")
_FAB: Final = re.compile(r"(?:(?<=`)|(?<=Example: ))fab(?= [a-z-])")
_GLUE: Final = "\0"
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_STYLES: Final = re.compile(r"\x1b\[[0-9;:]*m")
"""Select Graphic Rendition (ECMA-48, 8.3.117): colors and weights."""


def fold(text: str, columns: int) -> str:
    """Fold each line to a width of `columns`, and indent continuation lines by two more.

    A word that is longer than the width is not broken.
    """
    return "\n".join(_fold(line, columns) for line in text.split("\n"))


def _fold(line: str, columns: int) -> str:
    """Fold one line at spaces to at most `columns` characters; a longer word stays whole.

    Continuation lines are indented by two more spaces. Spaces between backticks do not separate.
    """
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
    """Escape the control characters of a text, as `\\x1b`. Newlines and tabs stay. CRLF becomes a newline.

    Text from the nodes could otherwise control the terminal. Characters that change the direction of text are escaped
    too.
    """
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))


def output_lines(text: str, stream: TextIO) -> list[str]:
    """Split a line of a node's output into the lines to print. On a terminal they contain no control characters.

    On a terminal, colors are dropped and a carriage return, as in progress bars, ends a line. All other control
    characters are escaped, also those of hyperlinks and titles. A pipe or a file gets the line unchanged.
    """
    return visible_lines(text) if stream.isatty() else [text]


def visible_lines(text: str) -> list[str]:
    """Split a line of a node's output into lines without control characters, as `output_lines` describes."""
    parts = [part for part in _STYLES.sub("", text).split("\r") if part]
    return printable("\n".join(parts)).split("\n")


def with_command(text: str) -> str:
    """Return a message with the installed command in place of `fab`: in a wheel, "`fab up`" becomes "`deepcdk up`".

    Only commands that follow a backtick or `Example: ` are replaced.
    """
    return _FAB.sub(COMMAND, text)


def fitted(text: str, stream: TextIO) -> str:
    """Return a message to print: with the installed command in place of `fab`, and escaped control characters.

    It is folded to the width of the terminal if `stream` is one.
    """
    text = printable(with_command(text))
    return fold(text, shutil.get_terminal_size().columns) if stream.isatty() else text
