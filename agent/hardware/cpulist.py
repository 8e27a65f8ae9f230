"""The kernel's list format for CPUs and memory nodes, such as `0-3,8,10-11`. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

LARGEST: Final = 1 << 16
"""More CPUs than any kernel is built for, so that a damaged list does not fill the memory."""


def parse_list(text: str) -> frozenset[int]:
    """Parse a list, which may be empty. Raises ValueError, which quotes a malformed part."""
    found: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part, re.ASCII)
        if not match or not int(match[1]) <= int(match[2] or match[1]) < LARGEST:
            raise ValueError(f"{part!r} is neither a number nor a range")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)


def show_list(numbers: Iterable[int]) -> str:
    """Format numbers as a list with ranges."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
