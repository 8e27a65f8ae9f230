from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from agent.errors import ReportedError
from payload.settings import Settings
from payload.training.checkpoints.saver import Missed, Written
from payload.training.reporting.checkpoint_reporter import CheckpointReporter
from payload.training.reporting.step_timer import RunTotals
from payload.training.run_files import Metrics

WRITTEN = Written(name="step-00000007", bytes=9, waited_s=1.0, copied_s=2.0, written_s=30.0, slowed_s=4.0)
MISSED = Missed(name="step-00000009", error=ReportedError("cannot write /mnt/efs: No space left on device"))


def test_costs_add_up_and_rarer_checkpoints_are_told_again_only_where_much_rarer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    totals = RunTotals()
    with contextlib.closing(Metrics(tmp_path, started=0.0)) as metrics:
        reporter = CheckpointReporter(metrics, totals, Settings(checkpoint_minutes=5))
        for interval_s in (270.0, 350.0, 450.0, 460.0, 600.0):
            reporter.written(WRITTEN, interval_s=interval_s)
    assert totals.checkpoint_seconds == 5 * 7.0
    first, second = capsys.readouterr().out.splitlines()
    assert first == (
        "payload.train: a checkpoint takes 7.0 s of the training, so within epochs there is one every 7.5 min, not "
        "every 5: 2% of the time at most (--checkpoint-cost-percent)"
    )
    assert "one every 10.0 min" in second
    event = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])
    assert {name: event[name] for name in ("checkpoint", "slowed_s", "interval_s")} == {
        "checkpoint": "step-00000007",
        "slowed_s": 4.0,
        "interval_s": 270.0,
    }


def test_without_checkpoints_by_the_clock_nothing_is_said_of_their_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.closing(Metrics(tmp_path, started=0.0)) as metrics:
        CheckpointReporter(metrics, RunTotals(), Settings(checkpoint_minutes=0)).written(WRITTEN, interval_s=0.0)
    assert capsys.readouterr().out == ""


def test_one_that_was_missed_is_in_the_metrics_in_the_log_and_in_the_totals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    totals = RunTotals()
    with contextlib.closing(Metrics(tmp_path, started=0.0)) as metrics:
        CheckpointReporter(metrics, totals, Settings()).missed(MISSED)
    assert totals.checkpoints_missed == ["step-00000009: cannot write /mnt/efs: No space left on device"]
    assert capsys.readouterr().out.startswith(
        "payload.train: warning: no checkpoint step-00000009: cannot write /mnt/efs: No space left on device. "
        "The training goes on"
    )
    event = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert (event["event"], event["checkpoint"], event["reason"]) == (
        "checkpoint_missed",
        "step-00000009",
        "cannot write /mnt/efs: No space left on device",
    )
