"""The base of the errors that the programs on a node report in one line instead of a traceback."""

from __future__ import annotations


class ReportedError(Exception):
    """Report something that is wrong and what to do about it; a program prints the message and exits with status 1."""
