"""Parse JSON that another machine or a rank has written: any input gives a value or a ValueError."""

from __future__ import annotations

import json
from typing import Any, Final

MAX_DIGITS: Final = 18
"""Maximum digits of an integer. No real count is longer, and longer ones would overflow when they are formatted."""
MAX_LEVELS: Final = 50
"""Maximum nesting of lists and objects. Python's own limit depends on the depth of the call stack."""


def parse(text: str | bytes) -> Any:
    """Parse JSON, in which NaN and Infinity are valid too.

    Raises ValueError for invalid JSON, for too long integers and for too deep nesting.
    """
    try:
        value = json.loads(text, parse_int=_whole)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None
    level = [value]
    for _ in range(MAX_LEVELS):
        level = [below for each in level if isinstance(each, dict | list) for below in _below(each)]
        if not level:
            return value
    raise ValueError("JSON is nested too deeply")


def _below(value: dict[str, Any] | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise ValueError(f"JSON has a number of more than {MAX_DIGITS} digits")
    return int(digits)
