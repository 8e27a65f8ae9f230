"""Format amounts, rates and durations for people.

The package humanize is not used: only its naturalsize would fit (it prints 3:05 as "3 minutes and 5 seconds"), and its
import takes 14 ms.
"""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")


def amount(count: float) -> str:
    """Format a number of bytes in decimal units: 512 bytes, 1.5 MB."""
    for unit in _UNITS:
        if count < 999.5 or unit == _UNITS[-1]:
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"


def rate(bytes_per_s: float) -> str:
    """Format a rate with decimal units, as is usual for networks: 512 B/s, 1.5 MB/s."""
    return f"{amount(bytes_per_s).replace('bytes', 'B')}/s"


def duration(seconds: float) -> str:
    """Format a duration, rounded to seconds: 42 s, 3:05, 2:03:04."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def span(seconds: float) -> str:
    """Format a long duration, rounded down to minutes: 12 h, 1 h 5 min, 40 min, less than a minute."""
    minutes = int(seconds) // 60
    if not minutes:
        return "less than a minute"
    hours, rest = divmod(minutes, 60)
    return " ".join([*([f"{hours} h"] if hours else []), *([f"{rest} min"] if rest else [])])
