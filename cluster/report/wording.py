"""Values as people read them, without what a terminal, a browser or an SVG reader could take for more than text."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Final

from cluster.terminal.units import duration

MOST_CHARACTERS: Final = 2000
"""Of one value; a longer one is cut."""
UNKNOWN: Final = "unknown"
# Control characters, what turns the direction of writing (which can show a text as another), and halves of characters.
_UNSEEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def plain(text: str) -> str:
    """Return a text as one line of what can be seen, cut where it is very long."""
    seen = " ".join(_UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text.replace("\n", " ").replace("\t", " ")).split())
    return seen if len(seen) <= MOST_CHARACTERS else f"{seen[:MOST_CHARACTERS]}... ({len(text):,} characters)"


def value_text(value: object) -> str:
    """Return a JSON value as text: `yes`, `0.05`, `a, b`, and `-` for nothing."""
    if value is None or value == "" or value == [] or value == {}:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return plain(", ".join(value_text(each) for each in value))
    if isinstance(value, dict):
        return plain(", ".join(f"{name} {value_text(each)}" for name, each in sorted(value.items())))
    return plain(str(value))


def percent(share: float | None, digits: int = 2) -> str:
    """Return a share of 0 to 1 as 98.89%."""
    return UNKNOWN if share is None else f"{share:.{digits}%}"


def time_text(seconds: float | None) -> str:
    """Return a duration: 4.3 s, 42 s, 3:05, 2:03:04."""
    if seconds is None:
        return UNKNOWN
    return f"{seconds:.1f} s" if 0 <= seconds < 9.95 else duration(seconds)


def dollars(usd: float | None) -> str:
    """Return a cost with as many digits as a small one needs."""
    if usd is None:
        return UNKNOWN
    return f"${usd:,.2f}" if usd >= 1 else f"${usd:.4f}"


def rate_text(per_s: float | None) -> str:
    """Return a rate as 1,787; one below ten with two digits."""
    if per_s is None:
        return UNKNOWN
    return f"{per_s:,.0f}" if per_s >= 10 else f"{per_s:.2g}"


def date_text(unix: float) -> str:
    """Return a moment as 2026-11-23 22:28:25 UTC."""
    return f"{datetime.datetime.fromtimestamp(unix, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"


def listed(words: Sequence[str]) -> str:
    """Return `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
