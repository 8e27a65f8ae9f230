"""Messages of a run's supervisor update the progress on the laptop."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.runs.run_progress import RunProgress, parse_message, reduce

STATE = {
    "type": "state",
    "run_id": "one",
    "state": "running",
    "reason": "",
    "started": 100.0,
    "updated": 101.0,
    "hosts": ["w1"],
}
START = {"type": "metric", "line": 0, "record": {"event": "start", "epochs": 4, "steps_per_epoch": 10, "ranks": 2}}
STEP = {
    "type": "metric",
    "line": 1,
    "record": {"event": "step", "epoch": 2, "step": 5, "steps_per_epoch": 10, "images_per_s": 900.5, "loss": 0.5,
               "accuracy": 0.9, "learning_rate": 0.1, "eta_s": 12.0},
}  # fmt: skip
EPOCH = {
    "type": "metric",
    "line": 2,
    "record": {"event": "epoch", "epoch": 2, "train_loss": 0.4, "train_accuracy": 0.92, "test_loss": 0.3,
               "test_accuracy": 0.95, "images_per_s": 950, "seconds": 3.0, "weights_agree": True},
}  # fmt: skip
END = {**STATE, "state": "succeeded"}


def fold(*messages: dict[str, Any]) -> RunProgress:
    progress = RunProgress()
    for message in messages:
        progress = reduce(progress, message)
    return progress


def test_step_updates_the_progress() -> None:
    progress = fold(STATE, START, STEP)
    assert (progress.epoch, progress.epochs, progress.step, progress.images_per_s, progress.eta_s) == (
        2,
        4,
        5,
        900.5,
        12.0,
    )
    assert progress.fraction == (1 + 0.5) / 4
    assert progress.next_line == 2


def test_run_with_validation_shows_it_and_tests_at_its_end() -> None:
    epoch = {"type": "metric", "line": 1, "record": {"event": "epoch", "epoch": 1, "validation_accuracy": 0.9}}
    progress = fold(STATE, START, epoch)
    assert (progress.validation_accuracy, progress.test_accuracy) == (0.9, None)
    end = {"type": "metric", "line": 2, "record": {"event": "end", "test_accuracy": 0.8}}
    assert (fold(STATE, START, epoch, end).validation_accuracy, fold(STATE, START, epoch, end).test_accuracy) == (
        0.9,
        0.8,
    )


def test_failed_run_keeps_its_reason_and_last_lines() -> None:
    progress = fold(STATE, {**STATE, "state": "failed", "reason": "status 1", "last_lines": ["a", "b"]})
    assert progress.is_final
    assert (progress.reason, progress.last_lines) == ("status 1", ("a", "b"))


@pytest.mark.parametrize("line", ["", "Last login: today", "[1]", '"x"', '{"no": "type"}', '{"type": 3}'])
def test_line_without_a_message_is_skipped(line: str) -> None:
    assert parse_message(line) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from(["start", "step", "epoch", "end", "other"]),
    st.dictionaries(st.sampled_from(["epoch", "step", "loss", "epochs", "eta_s", "test_accuracy", "time"]), JSON),
)
def test_any_message_keeps_progress_valid(event: str, values: dict[str, Any]) -> None:
    progress = reduce(fold(STATE, START), {"type": "metric", "line": 1, "record": {**values, "event": event}})
    assert progress.epoch is None or isinstance(progress.epoch, int)
    assert progress.loss is None or isinstance(progress.loss, float)


def test_log_continues_after_last_line_seen() -> None:
    assert fold(STATE).next_log_line == 0
    assert reduce(fold(STATE), {"type": "log", "run_id": "one", "next": 42, "lines": ["hello"]}).next_log_line == 42
