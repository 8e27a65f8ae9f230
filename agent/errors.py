"""The errors that the programs on a node report in one line instead of a traceback."""

from __future__ import annotations


class ReportedError(Exception):
    """Report something that is wrong and what to do about it; a program prints the message and exits with status 1."""


class SpecError(ValueError):
    """Report the spec of a run that cannot be carried out: a malformed node or field, or too few nodes."""
