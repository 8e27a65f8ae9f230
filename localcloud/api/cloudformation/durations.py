"""ISO 8601 durations, as CreationPolicy and UpdatePolicy hold them."""

from __future__ import annotations

import re

_DURATION = re.compile(r"P(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?|(\d+)D(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?)")


def parse_duration(value: str) -> float | None:
    """Return a duration in seconds (`PT1H5M` is 3900.0); None where it is not one."""
    match = _DURATION.fullmatch(value)
    if match is None or value in ("P", "PT") or value.endswith("T"):
        return None
    hours, minutes, seconds, days, more_hours, more_minutes, more_seconds = (int(each or 0) for each in match.groups())
    return float(days * 86400 + (hours + more_hours) * 3600 + (minutes + more_minutes) * 60 + seconds + more_seconds)
