"""The command line of the tasks: which task a word names, its flags, its errors, Ctrl-C.

Here is what every command of `fab` needs before a task is imported: the checkout, and how Ctrl-C ends it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parents[2]
INTERRUPTED: Final = "\ninterrupted"
INTERRUPTED_STATUS: Final = 130


def drop_output() -> None:
    """Print nothing more: the reader of our output has gone, as `head` does, and Python would say so at its exit."""
    sys.stdout = open("/dev/null", "w")  # noqa: PTH123, SIM115  # must outlive this function
