"""Print a task's output: its result on stdout, as text or one JSON document, and notes on stderr."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Callable

from cluster.terminal.status_line import aside
from cluster.terminal.wrap import fitted, output_lines, printable


def print_line(text: str) -> None:
    """Print a line on stdout and flush it. On a terminal, control characters are escaped; it is not folded.

    The text is for data. For text that names `fab` commands, use `print_sentence`.
    """
    with aside():
        print(printable(text) if sys.stdout.isatty() else text, flush=True)


def print_output(*texts: str, aside_of_result: bool = False) -> None:
    """Print lines of a node's output on stdout; with `aside_of_result` on stderr, because stdout is for the result.

    On a terminal, control characters are removed or escaped as `output_lines` describes.
    """
    stream = sys.stderr if aside_of_result else sys.stdout
    with aside():
        print("\n".join(line for text in texts for line in output_lines(text, stream)), file=stream, flush=True)


def print_sentence(text: str) -> None:
    """Print a sentence on stdout, with the installed command in place of `fab`, and control characters escaped.

    On a terminal it is folded.
    """
    with aside():
        print(fitted(text, sys.stdout), flush=True)


def print_note(text: str) -> None:
    """Print a sentence on stderr like `print_sentence`, so that stdout contains only output for programs."""
    with aside():
        print(fitted(text, sys.stderr), file=sys.stderr, flush=True)


def print_result(document: object, text: str = "", *, json: bool, indent: int | None = 1) -> None:
    """Print a task's result on stdout: with `json` the document as JSON, else the text."""
    print_line(json_format.dumps(document, indent=indent) if json else text)


def progress_printer(*, json: bool) -> Callable[[str], None]:
    """Return the function that prints progress: on stdout, or with `json` on stderr, because stdout is then for the
    result.
    """
    return print_note if json else print_sentence
