"""Base errors. A program on a node reports a ReportedError in one line instead of a traceback."""

from __future__ import annotations

import os
import re
from typing import Final

_MISSING: Final = re.compile("missing .* arguments?: (.+)")
_UNKNOWN: Final = re.compile("unexpected keyword argument ('[^']+')")
"""Python's messages if values for an object are missing or unknown."""
UPLOAD_AGAIN: Final = "to upload it again, start a new run: repeat `fab train` or `fab sweep` with the same flags"
"""Remedy for a missing tree of a run. `fab resume` does not upload the run's program."""


class ReportedError(Exception):
    """Report what is wrong and what to do about it. A program prints the message and exits with status 1."""


class SpecError(ValueError):
    """Report an invalid specification of a run: a malformed node or field, or too few nodes."""


def describe(error: BaseException) -> str:
    """Return an error's text for users.

    For a system error, it is `PATH: REASON`, or `REASON` if the error has no path, without Python's `[Errno N]`.
    """
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    path = error.filename
    return f"{os.fsdecode(path)}: {error.strerror}" if isinstance(path, str | bytes | os.PathLike) else error.strerror


def malformed(error: Exception) -> str:
    """Return in words why JSON is malformed: a missing or unknown key, a value of the wrong type, or the parser's text.

    `error` was raised when the JSON was parsed or its values were used.
    """
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing"
    text = str(error) if isinstance(error, TypeError) else ""
    if missing := _MISSING.search(text):
        return f"missing: {missing[1]}"
    if unknown := _UNKNOWN.search(text):
        return f"{unknown[1]} is unknown"
    return "a value has the wrong type" if isinstance(error, TypeError | AttributeError) else describe(error)


def unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Return in words why a text file cannot be read, without its path."""
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
