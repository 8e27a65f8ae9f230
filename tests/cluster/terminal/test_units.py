"""Facts about amounts, rates and durations: each is written in the unit that fits."""

from __future__ import annotations

import pytest

from cluster.terminal.units import amount, duration, rate, span


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (999.5, "1.0 kB"),
        (1000, "1.0 kB"),
        (1_500_000, "1.5 MB"),
        (999_999, "1.0 MB"),
        (5e15, "5000.0 TB"),
    ],
)
def test_amounts_are_in_the_unit_that_fits(count: float, text: str) -> None:
    assert amount(count) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B/s"), (999, "999 B/s"), (1500, "1.5 kB/s"), (2.5e6, "2.5 MB/s"), (1.25e10, "12.5 GB/s")]
)
def test_rates_are_in_the_units_in_which_networks_are_sold(value: float, text: str) -> None:
    assert rate(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (42.4, "42 s"),
        (59.4, "59 s"),
        (59.6, "1:00"),
        (3599, "59:59"),
        (3600, "1:00:00"),
        (3660, "1:01:00"),
        (185, "3:05"),
        (7384, "2:03:04"),
    ],
)
def test_a_duration_is_written_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(59, "less than a minute"), (2400, "40 min"), (3900, "1 h 5 min"), (43_259, "12 h")]
)
def test_long_spans_are_in_hours_and_minutes_rounded_down(seconds: float, text: str) -> None:
    assert span(seconds) == text
