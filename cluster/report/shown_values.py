"""Format values for people, without characters that affect a terminal, a browser or an SVG reader."""

from __future__ import annotations

import datetime
import re
from typing import Final

from cluster.terminal.units import duration

MAX_CHARACTERS: Final = 2000
UNKNOWN: Final = "unknown"
# Control characters, characters that change the direction of text, surrogates and characters that XML forbids.
_UNSEEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def plain(value: object) -> str:
    """Return a value's text as one printable line; "" for None. A text of over MAX_CHARACTERS is truncated.

    Line breaks and tabs become spaces. Other characters that are not shown become replacement characters.
    """
    text = "" if value is None else str(value)
    seen = " ".join(_UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text.replace("\n", " ").replace("\t", " ")).split())
    return seen if len(seen) <= MAX_CHARACTERS else f"{seen[:MAX_CHARACTERS]}... ({len(text):,} characters)"


def value_text(value: object) -> str:
    """Format a JSON value as text: `yes`, `0.05`, `a, b`, or `-` for an empty value."""
    if value is None or value in ("", [], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return plain(", ".join(value_text(each) for each in value))
    if isinstance(value, dict):
        return plain(", ".join(f"{name} {value_text(each)}" for name, each in sorted(value.items())))
    return plain(value)


def percent(share: float | None, digits: int = 2) -> str:
    """Format a share of 0 to 1 as 98.89%; UNKNOWN for None. `digits`: number of decimals."""
    return UNKNOWN if share is None else f"{share:.{digits}%}"


def time_text(seconds: float | None) -> str:
    """Format a duration: 4.3 s, 42 s, 3:05, 2:03:04; UNKNOWN for None."""
    if seconds is None:
        return UNKNOWN
    return f"{seconds:.1f} s" if 0 <= seconds < 9.95 else duration(seconds)


def dollars(usd: float | None) -> str:
    """Format a cost as $12.34, or as $0.0123 below one dollar; UNKNOWN for None."""
    if usd is None:
        return UNKNOWN
    return f"${usd:,.2f}" if usd >= 1 else f"${usd:.4f}"


def rate_text(per_s: float | None) -> str:
    """Format a rate as 1,787, or as 0.034 below ten; UNKNOWN for None."""
    if per_s is None:
        return UNKNOWN
    return f"{per_s:,.0f}" if per_s >= 10 else f"{per_s:.2g}"


def date_text(unix: float) -> str:
    """Format a Unix time as 2026-11-23 22:28:25 UTC."""
    return f"{datetime.datetime.fromtimestamp(unix, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"


def plural(count: int, word: str) -> str:
    """Format a count with its noun: `1 node`, `2 nodes`."""
    return f"{count} {word}{'s' * (count != 1)}"
