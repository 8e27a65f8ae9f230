"""The base of the errors that training states in one line instead of a traceback."""

from __future__ import annotations


class PayloadError(Exception):
    """Say what was wrong, where, and what to do now. `payload.train` prints it once and exits with 1."""
