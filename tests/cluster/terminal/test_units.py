"""Amounts, rates and durations."""

from __future__ import annotations

from cluster.terminal.units import amount, duration, rate, span


def test_amounts_and_rates_have_the_unit_that_fits() -> None:
    amounts = {
        0: "0 bytes",
        999: "999 bytes",
        999.5: "1.0 kB",
        1_500_000: "1.5 MB",
        999_999: "1.0 MB",
        5e15: "5000.0 TB",
    }
    assert {count: amount(count) for count in amounts} == amounts
    rates = {0: "0 B/s", 999: "999 B/s", 1500: "1.5 kB/s", 1.25e10: "12.5 GB/s"}
    assert {count: rate(count) for count in rates} == rates


def test_durations_are_rounded_and_long_spans_rounded_down() -> None:
    durations = {-1: "0 s", 59.4: "59 s", 59.6: "1:00", 185: "3:05", 3599: "59:59", 3600: "1:00:00", 7384: "2:03:04"}
    assert {seconds: duration(seconds) for seconds in durations} == durations
    spans = {59: "less than a minute", 2400: "40 min", 3900: "1 h 5 min", 43_259: "12 h"}
    assert {seconds: span(seconds) for seconds in spans} == spans
