"""ISO 8601 durations of creation policies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localcloud.api.cloudformation.signals import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("PT15M", 900.0), ("PT1H30M", 5400.0), ("PT45S", 45.0), ("P1D", 86400.0), ("P1DT2H", 93600.0), ("PT0S", 0.0)],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "P", "PT", "15M", "PT15", "PT-5M", "P1DT", "PT1M1H", "pt5m"])
def test_what_is_no_duration_is_not_read(text: str) -> None:
    assert parse_duration(text) is None


@given(st.integers(0, 99), st.integers(0, 999), st.integers(0, 9999))
def test_hours_minutes_and_seconds_add_up(hours: int, minutes: int, seconds: int) -> None:
    assert parse_duration(f"PT{hours}H{minutes}M{seconds}S") == hours * 3600 + minutes * 60 + seconds
