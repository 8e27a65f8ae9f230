"""result.json: one JSON object with all that a comparison of runs needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from payload.training.reporting.result_file import Result, write_result


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


def test_result_is_one_json_object_with_all_that_a_comparison_needs(tmp_path: Path) -> None:
    document = json.loads(write_result(tmp_path, result()).read_text())
    assert document["hosts"] == ["a", "b"]
    assert document.keys() >= {"test_accuracy", "seconds", "images_per_s", "versions", "payload_hash", "git_commit"}
