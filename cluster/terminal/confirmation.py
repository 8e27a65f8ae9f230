"""Ask before an action that costs or destroys something."""

from __future__ import annotations

import sys
from typing import Final

from cluster.errors import DeepcdkError
from cluster.terminal.wrap import fitted

NO_TERMINAL: Final = "There is no terminal on which to ask"


def confirm(question: str, *, yes: bool, remedy: str = "give --yes") -> None:
    """Ask before an action that costs or destroys something. Raises DeepcdkError unless the answer is yes, or without a
    terminal.

    With `yes` it does not ask. `remedy` is for the error without a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise DeepcdkError(f"{question} {NO_TERMINAL}", remedy=remedy)
    try:
        # Print to stderr, because stdout may be for a document. input() would truncate a long prompt.
        print(fitted(f"{question} [y/N]", sys.stderr), end=" ", file=sys.stderr, flush=True)
        answer = input()
    except EOFError:  # Ctrl-D
        print(file=sys.stderr)
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise DeepcdkError("Aborted.")
