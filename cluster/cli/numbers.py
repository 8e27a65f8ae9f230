"""Numbers as a user gives them on a command line."""

from __future__ import annotations

from typing import Final

from cluster.errors import UsageError

MOST: Final = 999_999_999
"""More than any flag can mean; Python itself refuses to read numbers of thousands of digits."""


def parse_whole(name: str, text: str, *, lowest: int, highest: int = MOST, called: str = "") -> int:
    """Parse a whole number of the flag `name`; `called` says what gives the highest its value.

    Raises UsageError that names the rule.
    """
    digits = text.lstrip("0")
    is_number = text.isascii() and text.isdecimal() and len(digits) <= len(str(MOST))
    number = int(digits or "0") if is_number else None
    if number is None or not lowest <= number <= highest:
        rule = f"must be a whole number from {lowest} to {highest}"
        raise UsageError(name, text, f"{rule} ({called})" if called else rule)
    return number


def parse_positive(name: str, text: str, *, highest: float, unit: str) -> float:
    """Parse a number above 0 of the flag `name`. Raises UsageError that names the rule."""
    number = parse_number(name, text)
    if not 0 < number <= highest:  # False for nan, too
        raise UsageError(name, text, f"must be {unit} above 0, at most {highest:g}")
    return number


def parse_number(name: str, text: str) -> float:
    """Parse a number of the flag `name`. Raises UsageError that names the rule."""
    try:
        return float(text)
    except ValueError:
        raise UsageError(name, text, "must be a number") from None
