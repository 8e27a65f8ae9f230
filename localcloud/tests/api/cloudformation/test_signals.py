"""Number of necessary signals, timeouts of waits, and parsing of durations."""

from __future__ import annotations

import dataclasses
import time

import pytest

from localcloud.api.cloudformation.signals import creation_wait, parse_duration, signal_wait


def test_resource_without_policy_waits_for_no_signal() -> None:
    assert creation_wait({}) is None
    assert creation_wait({"CreationPolicy": {"ResourceSignal": {"Count": 0}}}) is None


def test_default_policy_is_one_signal_within_five_minutes() -> None:
    wait = creation_wait({"CreationPolicy": {"ResourceSignal": {}}})
    assert wait is not None
    assert (wait.count, wait.needed) == (1, 1)
    assert 299 < wait.left_s() <= 300


def test_all_must_succeed() -> None:
    wait = signal_wait(2, "PT1M")
    assert wait.verdict({}) is None
    assert wait.verdict({"i-1": "SUCCESS"}) is None
    assert wait.verdict({"i-1": "SUCCESS", "i-2": "SUCCESS"}) == ""


def test_one_failure_fails_unless_policy_allows_some() -> None:
    verdict = signal_wait(4, "PT1M").verdict({"i-1": "FAILURE"})
    assert verdict == (
        "Received 1 FAILURE signal(s) out of 4.  Unable to satisfy 100% MinSuccessfulInstancesPercent requirement"
    )
    sparing = signal_wait(4, "PT1M", percent=75)
    signals = {"i-1": "FAILURE", "i-2": "SUCCESS", "i-3": "SUCCESS"}
    assert sparing.verdict(signals) is None
    assert sparing.verdict({**signals, "i-4": "SUCCESS"}) == ""


def test_missing_signals_fail_at_deadline() -> None:
    late = dataclasses.replace(signal_wait(2, "PT1M"), deadline=time.monotonic() - 1)
    assert late.verdict({}) == "Failed to receive 2 resource signal(s) within the specified duration"
    assert late.verdict({"i-1": "SUCCESS"}) == (
        "Received 1 SUCCESS signal(s) out of 2.  Unable to satisfy 100% MinSuccessfulInstancesPercent requirement"
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("PT15M", 900.0), ("PT1H30M", 5400.0), ("PT45S", 45.0), ("P1D", 86400.0), ("P1DT2H", 93600.0), ("PT0S", 0.0)],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "P", "PT", "15M", "PT15", "PT-5M", "P1DT", "PT1M1H", "pt5m"])
def test_invalid_duration_is_rejected(text: str) -> None:
    assert parse_duration(text) is None
