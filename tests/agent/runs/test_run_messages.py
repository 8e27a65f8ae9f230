"""Following a run: only whole lines, in order, and resuming at the reader's last position."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.runs.run_directory import RunDirectory
from agent.runs.run_messages import HEARTBEAT_S, follow, is_of_rank, sleep_while_read


def steps(*actions: Callable[[], object]) -> Callable[[float], None]:
    """Return a `sleep` that performs the next action each time it is called."""
    waiting = list(actions)

    def sleep(_: float) -> None:
        waiting.pop(0)()

    return sleep


def end(directory: RunDirectory, state: str = "succeeded") -> None:
    directory.write_state(dataclasses.replace(directory.effective_state(), state=state))


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_line_is_returned_once_it_is_complete(directory: RunDirectory) -> None:
    sleep = steps(
        lambda: append(directory.metrics, '{"event": "st'),
        lambda: append(directory.metrics, 'art"}\n{"event": "end"}\nnot json\n[1]\n'),
        lambda: end(directory),
    )
    messages = list(follow(directory, sleep=sleep))
    assert [(m["line"], m["record"]["event"]) for m in messages if m["type"] == "metric"] == [(0, "start"), (1, "end")]
    assert [m["state"] for m in messages if m["type"] == "state"] == ["running", "succeeded"]


def test_metrics_written_at_the_end_come_before_the_end(directory: RunDirectory) -> None:
    def last() -> None:
        append(directory.metrics, '{"event": "end"}\n')
        end(directory)

    assert [m["type"] for m in follow(directory, sleep=steps(last))] == ["state", "metric", "state"]


def test_heartbeat_does_not_change_the_state(directory: RunDirectory) -> None:
    def beat() -> None:
        directory.write_state(dataclasses.replace(directory.effective_state(), updated=9.0))

    assert [m["type"] for m in follow(directory, sleep=steps(beat, lambda: end(directory)))] == ["state", "state"]


def test_log_is_sent_on_request_from_the_requested_line(directory: RunDirectory) -> None:
    append(directory.log, "first\nsecond\nthird")
    end(directory)
    log = [m for m in follow(directory, log_from=1) if m["type"] == "log"]
    assert [(m["next"], m["lines"]) for m in log] == [(2, ["second"]), (3, ["third"])]
    assert [m["type"] for m in follow(directory)] == ["state"]


def test_negative_line_counts_from_the_end_of_the_log(directory: RunDirectory) -> None:
    append(directory.log, "".join(f"line {number}\n" for number in range(5)))
    end(directory)
    for log_from, first in ((-2, 3), (-9, 0)):
        log = [m for m in follow(directory, None, log_from=log_from) if m["type"] == "log"]
        assert [line for m in log for line in m["lines"]] == [f"line {number}" for number in range(first, 5)]
        assert log[-1]["next"] == 5


def test_log_without_following_is_sent_once_to_its_end(directory: RunDirectory) -> None:
    append(directory.metrics, '{"event": "start"}\n')
    append(directory.log, "[0]<stdout>:zero\n[1]<stdout>:one\n[1]<stdout>:half")
    messages = list(follow(directory, None, log_from=0, rank=1, is_once=True))
    assert [m["type"] for m in messages] == ["state", "log", "log", "end"]
    assert [m["lines"] for m in messages[1:3]] == [["[1]<stdout>:one"], ["[1]<stdout>:half"]]


def test_reader_of_later_part_gets_heartbeats(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Much time passes between two skipped blocks of the log, as on a slow file system."""
    append(directory.log, "a line\n" * 50_000)
    end(directory)
    now = itertools.count(0.0, HEARTBEAT_S)
    monkeypatch.setattr("agent.runs.run_messages.time.monotonic", lambda: next(now))
    kinds = [m["type"] for m in follow(directory, log_from=50_000)]
    assert set(kinds[:-1]) == {"heartbeat"} and kinds[-1] == "state"


@pytest.mark.parametrize(
    ("line", "rank", "told"),
    [
        ("[1]<stdout>:x", 1, True),
        ("Fri Nov 20 12:00:00 2026[1]<stderr>:x", 1, True),
        ("[11]<stdout>:x", 1, False),
        ("[supervisor] x", 1, False),
    ],
)
def test_lines_are_separated_by_rank(line: str, rank: int, told: bool) -> None:
    assert is_of_rank(line, rank) is told


def test_log_is_followed_to_its_unfinished_last_line(directory: RunDirectory) -> None:
    append(directory.log, "one\n")
    sleep = steps(lambda: append(directory.log, "two\nthree"), lambda: end(directory))
    log = [m["lines"] for m in follow(directory, None, sleep, log_from=0) if m["type"] == "log"]
    assert log == [["one"], ["two"], ["three"]]


def test_preflight_report_is_shown_once_and_not_again_after_reconnecting(directory: RunDirectory) -> None:
    directory.preflight.write_text('{"lines": ["all well"]}')
    append(directory.metrics, '{"event": "start"}\n')
    end(directory)
    for from_line, told in ((0, 1), (1, 0)):
        messages = [message for message in follow(directory, from_line) if message["type"] == "preflight"]
        assert len(messages) == told
    directory.preflight.write_text("{")
    assert not [message for message in follow(directory) if message["type"] == "preflight"]


def test_waiting_command_notices_that_its_reader_has_exited() -> None:
    reading, writing = os.pipe()
    sleep = sleep_while_read(writing)
    sleep(0.01)
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        sleep(60.0)
    os.close(writing)


def test_reader_that_is_a_file_never_exits(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        sleep_while_read(file.fileno())(0.01)
