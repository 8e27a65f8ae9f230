from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from agent.files.atomic_write import StorageError
from payload.training.run_files import Metrics, Result, write_result


def lines(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def result(**changes: Any) -> Result:
    values: dict[str, Any] = {
        "recipe": "digits",
        "variant": None,
        "test_accuracy": 0.99,
        "test_top5_accuracy": 1.0,
        "validation_accuracy": None,
        "validation_loss": None,
        "skipped_records": 0,
        "settings": {"epochs": 2},
        "test_loss": 0.1,
        "train_accuracy": 1.0,
        "train_loss": 0.01,
        "epochs": 2,
        "steps": 10,
        "seconds": 1.5,
        "training_seconds": 1.0,
        "epoch_seconds": (0.5, 0.5),
        "data_wait_seconds": 0.1,
        "checkpoint_seconds": 0.1,
        "checkpoints_missed": (),
        "images_per_s": 100.0,
        "ranks": 2,
        "hosts": ("a", "b"),
        "global_batch": 64,
        "peak_learning_rate": 0.1,
        "seed": 1,
        "resumed_from": None,
        "passed_over": (),
        "weights_sha256": "00",
        "parameters": 431080,
        "arrangement": {"cycle_time_ms": 5.0},
        "placements": ("CPUs 0", "CPUs 1"),
        "versions": {"python": "3.11"},
        "payload_hash": None,
        "git_commit": None,
        "finished": 0.0,
    }
    return Result(**{**values, **changes})


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


def test_a_later_process_appends_and_ends_a_line_that_a_crash_cut(tmp_path: Path) -> None:
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


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with (
        contextlib.closing(Metrics(tmp_path, started=time.time())) as metrics,
        pytest.raises(StorageError, match=r"metrics\.jsonl: No space left on device"),
    ):
        metrics.event("start")


def test_the_result_is_one_json_object_with_all_that_a_comparison_needs(tmp_path: Path) -> None:
    document = json.loads(write_result(tmp_path, result()).read_text())
    assert document["hosts"] == ["a", "b"]
    assert document.keys() >= {"test_accuracy", "seconds", "images_per_s", "versions", "payload_hash", "git_commit"}
