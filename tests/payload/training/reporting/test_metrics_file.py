"""metrics.jsonl: each line is complete as soon as it is written, also after a crash."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from agent.files.atomic_write import StorageError
from payload.training.reporting.metrics_file import Metrics


def lines(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def test_each_event_is_readable_as_soon_as_it_is_written(tmp_path: Path) -> None:
    before = time.time()
    with contextlib.closing(Metrics(tmp_path, started=before)) as metrics:
        metrics.event("start", epochs=3)
        (start,) = lines(tmp_path)
        metrics.event("end", test_accuracy=1 / 3)
        _, end = lines(tmp_path)
    assert (start["event"], start["epochs"]) == ("start", 3)
    assert before - 1 <= start["time"] <= time.time() + 1, "rounded"
    assert end["test_accuracy"] == pytest.approx(1 / 3, abs=1e-6)


def test_later_process_completes_truncated_line_and_appends(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"event": "start"}\n{"event": "st')
    with contextlib.closing(Metrics(tmp_path, started=time.time())) as metrics:
        metrics.event("start")
    first, cut, last = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(first) == {"event": "start"}
    assert cut == '{"event": "st'
    assert json.loads(last)["event"] == "start"


def test_step_events_are_due_twice_a_second_at_most(tmp_path: Path) -> None:
    with contextlib.closing(Metrics(tmp_path, started=time.time())) as metrics:
        assert metrics.step_due()
        assert not metrics.step_due()


def test_full_disk_is_reported_with_file(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with (
        contextlib.closing(Metrics(tmp_path, started=time.time())) as metrics,
        pytest.raises(StorageError, match=r"metrics\.jsonl: No space left on device"),
    ):
        metrics.event("start")
