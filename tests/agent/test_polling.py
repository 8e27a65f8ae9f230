"""Waiting with a deadline."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

from agent.polling import terminate, wait_until


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Use a clock that only sleeping advances; return all its times, the latest first."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.insert(0, now[0] + seconds))
    return now


def test_polling_returns_first_true_value(clock: list[float]) -> None:
    values = iter([None, 0, "", "value"])
    assert wait_until(lambda: next(values), timeout_s=60, poll_s=2) == "value"
    assert clock[0] == 106.0


def test_polling_returns_last_false_value_after_timeout(clock: list[float]) -> None:
    asked: list[float] = []
    assert wait_until(lambda: asked.append(clock[0]), timeout_s=5, poll_s=2) is None
    assert asked == [100.0, 102.0, 104.0, 105.0]


def test_child_that_ignores_sigterm_is_killed() -> None:
    script = "trap '' TERM; echo x; while :; do sleep 0.1; done"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.read(1) == b"x"
        terminate(child, grace_s=0.2)
        assert child.returncode == -signal.SIGKILL
