"""ISO 8601 durations, as CreationPolicy and UpdatePolicy hold them.

Not isodate: it takes signs, weeks, years, fractions and `P1DT`, which CloudFormation refuses, so the check would stay.
"""

from __future__ import annotations

import re

_DURATION = re.compile(r"P(?=[\dT])(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")


def parse_duration(value: str) -> float | None:
    """Return a duration in seconds (`PT1H5M` is 3900.0); None where it is not one."""
    match = _DURATION.fullmatch(value)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(each or 0) for each in match.groups())
    return float(days * 86400 + hours * 3600 + minutes * 60 + seconds)
