"""Following a run from the laptop: broken connections are restored."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.errors import ConnectionFailedError
from cluster.runs.follow import follow
from cluster.runs.run_progress import RunProgress
from cluster.ssh.master import SilenceError
from tests.cluster.runs.test_run_progress import END, EPOCH, START, STATE, STEP


class Recorder:
    """Record the display calls."""

    def __init__(self) -> None:
        self.states: list[RunProgress] = []
        self.notes: list[str] = []

    def show(self, progress: RunProgress, message: dict[str, Any]) -> None:
        self.states.append(progress)

    def note(self, text: str) -> None:
        self.notes.append(text)


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


def test_broken_connection_is_resumed_at_same_position() -> None:
    open_stream, asked = opener(
        lambda: stream(STATE, START, STEP, error=SilenceError("cable")), lambda: stream(STATE, EPOCH, END)
    )
    recorder = Recorder()
    assert follow(open_stream, recorder, wait=lambda _: None).test_accuracy == 0.95
    assert asked == [0, 2]
    assert "cable" in recorder.notes[0]


def test_silent_stream_times_out() -> None:
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


def test_error_after_many_failures_says_that_run_continues() -> None:
    open_stream, _ = opener(*[lambda: stream()] * 3)
    with pytest.raises(SilenceError, match="the master stopped reporting before the run ended") as caught:
        follow(open_stream, Recorder(), run_id="one", pauses_s=(0.0, 0.0), wait=lambda _: None)
    again = "the run continues; watch it again with `fab attach --run one`"
    assert caught.value.remedy == again

    def refused(_: RunProgress) -> Iterator[str]:
        raise ConnectionFailedError("the name x cannot be resolved", remedy="check your DNS")

    with pytest.raises(ConnectionFailedError) as refusal:
        follow(refused, Recorder(), run_id="one", pauses_s=(), wait=lambda _: None)
    assert refusal.value.remedy == f"check your DNS; {again}"
