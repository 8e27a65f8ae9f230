"""Following a run from the laptop: messages update the progress, and broken connections are restored."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.runs.follow import RunProgress, follow, parse_message, reduce
from cluster.ssh.master import SilenceError

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


class Recorder:
    """Record the display calls."""

    def __init__(self) -> None:
        self.states: list[RunProgress] = []
        self.notes: list[str] = []

    def show(self, progress: RunProgress, message: dict[str, Any]) -> None:
        self.states.append(progress)

    def note(self, text: str) -> None:
        self.notes.append(text)


def fold(*messages: dict[str, Any]) -> RunProgress:
    progress = RunProgress()
    for message in messages:
        progress = reduce(progress, message)
    return progress


def test_a_step_is_folded_into_the_progress() -> None:
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


def test_a_run_with_validation_shows_it_and_tests_at_its_end() -> None:
    epoch = {"type": "metric", "line": 1, "record": {"event": "epoch", "epoch": 1, "validation_accuracy": 0.9}}
    progress = fold(STATE, START, epoch)
    assert (progress.validation_accuracy, progress.test_accuracy) == (0.9, None)
    end = {"type": "metric", "line": 2, "record": {"event": "end", "test_accuracy": 0.8}}
    assert (fold(STATE, START, epoch, end).validation_accuracy, fold(STATE, START, epoch, end).test_accuracy) == (
        0.9,
        0.8,
    )


def test_a_failed_run_keeps_its_reason_and_last_lines() -> None:
    progress = fold(STATE, {**STATE, "state": "failed", "reason": "status 1", "last_lines": ["a", "b"]})
    assert progress.is_final
    assert (progress.reason, progress.last_lines) == ("status 1", ("a", "b"))


@pytest.mark.parametrize("line", ["", "Last login: today", "[1]", '"x"', '{"no": "type"}', '{"type": 3}'])
def test_a_line_without_a_message_is_skipped(line: str) -> None:
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
def test_no_record_breaks_the_picture(event: str, values: dict[str, Any]) -> None:
    progress = reduce(fold(STATE, START), {"type": "metric", "line": 1, "record": {**values, "event": event}})
    assert progress.epoch is None or isinstance(progress.epoch, int)
    assert progress.loss is None or isinstance(progress.loss, float)


def test_the_log_is_taken_up_after_the_last_line_that_was_seen() -> None:
    assert fold(STATE).next_log_line == 0
    assert reduce(fold(STATE), {"type": "log", "run_id": "one", "next": 42, "lines": ["hello"]}).next_log_line == 42


def stream(*messages: dict[str, Any], error: Exception | None = None) -> Iterator[str]:
    for message in messages:
        yield json.dumps(message)
    if error:
        raise error


def opener(*streams: Callable[[], Iterator[str]]) -> tuple[Callable[[RunProgress], Iterator[str]], list[int]]:
    asked: list[int] = []
    waiting = list(streams)

    def open_stream(seen: RunProgress) -> Iterator[str]:
        asked.append(seen.next_line)
        return waiting.pop(0)()

    return open_stream, asked


def test_following_ends_with_the_run() -> None:
    open_stream, asked = opener(lambda: stream(STATE, START, STEP, END))
    recorder = Recorder()
    assert follow(open_stream, recorder, wait=lambda _: None).state == "succeeded"
    assert asked == [0]
    assert len(recorder.states) == 4


def test_a_broken_connection_is_taken_up_where_it_broke() -> None:
    open_stream, asked = opener(
        lambda: stream(STATE, START, STEP, error=SilenceError("cable")), lambda: stream(STATE, EPOCH, END)
    )
    recorder = Recorder()
    assert follow(open_stream, recorder, wait=lambda _: None).test_accuracy == 0.95
    assert asked == [0, 2]
    assert "cable" in recorder.notes[0]


def test_a_silent_stream_is_given_up() -> None:
    given_up = threading.Event()

    def silent() -> Iterator[str]:
        yield json.dumps(STATE)
        assert given_up.wait(60)

    open_stream, asked = opener(silent, lambda: stream(END))
    assert follow(open_stream, Recorder(), silence_s=0.05, wait=lambda _: given_up.set()).state == "succeeded"
    assert asked == [0, 0]


def test_abandoned_stream_is_closed_on_the_master() -> None:
    given_up, closed = threading.Event(), threading.Event()

    def slow() -> Iterator[str]:
        try:
            yield json.dumps(STATE)
            assert given_up.wait(60)
            while True:
                yield json.dumps({"type": "heartbeat"})
        finally:
            closed.set()

    open_stream, _ = opener(slow, lambda: stream(END))
    assert follow(open_stream, Recorder(), silence_s=0.05, wait=lambda _: given_up.set()).state == "succeeded"
    assert closed.wait(60)


def test_after_too_many_failures_the_error_says_that_the_run_goes_on() -> None:
    open_stream, _ = opener(*[lambda: stream()] * 3)
    with pytest.raises(SilenceError, match="the master stopped reporting before the run ended") as caught:
        follow(open_stream, Recorder(), pauses_s=(0.0, 0.0), wait=lambda _: None)
    assert "fab attach" in caught.value.remedy
