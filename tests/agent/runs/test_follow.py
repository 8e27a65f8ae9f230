"""Following a run: only whole lines, in order, and resuming at the reader's last position."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.runs import liveness
from agent.runs.all_runs import Runs
from agent.runs.follow import (
    HEARTBEAT_S,
    LAST_METRICS_BYTES,
    MAX_LINE,
    Tail,
    follow,
    is_of_rank,
    sleep_while_read,
    summary,
)
from agent.runs.run_directory import RunDirectory
from tests.factories import make_state
from tests.nfs import nfs_client


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    found = Runs(root=tmp_path)["one"]
    found.path.mkdir()
    liveness.hold("one")
    found.write_state(make_state())
    return found


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


def test_a_line_is_returned_once_it_is_complete(directory: RunDirectory) -> None:
    sleep = steps(
        lambda: append(directory.metrics, '{"event": "st'),
        lambda: append(directory.metrics, 'art"}\n{"event": "end"}\nnot json\n[1]\n'),
        lambda: end(directory),
    )
    messages = list(follow(directory, sleep=sleep))
    assert [(m["line"], m["record"]["event"]) for m in messages if m["type"] == "metric"] == [(0, "start"), (1, "end")]
    assert [m["state"] for m in messages if m["type"] == "state"] == ["running", "succeeded"]


def test_metrics_written_with_the_end_come_before_it(directory: RunDirectory) -> None:
    def last() -> None:
        append(directory.metrics, '{"event": "end"}\n')
        end(directory)

    assert [m["type"] for m in follow(directory, sleep=steps(last))] == ["state", "metric", "state"]


def test_a_heartbeat_does_not_change_the_state(directory: RunDirectory) -> None:
    def beat() -> None:
        directory.write_state(dataclasses.replace(directory.effective_state(), updated=9.0))

    assert [m["type"] for m in follow(directory, sleep=steps(beat, lambda: end(directory)))] == ["state", "state"]


def test_the_log_is_sent_on_request_from_the_requested_line(directory: RunDirectory) -> None:
    append(directory.log, "first\nsecond\nthird")
    end(directory)
    log = [m for m in follow(directory, log_from=1) if m["type"] == "log"]
    assert [(m["next"], m["lines"]) for m in log] == [(2, ["second"]), (3, ["third"])]
    assert [m["type"] for m in follow(directory)] == ["state"]


def test_a_negative_line_counts_from_the_end_of_the_log(directory: RunDirectory) -> None:
    append(directory.log, "".join(f"line {number}\n" for number in range(5)))
    end(directory)
    for log_from, first in ((-2, 3), (-9, 0)):
        log = [m for m in follow(directory, None, log_from=log_from) if m["type"] == "log"]
        assert [line for m in log for line in m["lines"]] == [f"line {number}" for number in range(first, 5)]
        assert log[-1]["next"] == 5


def test_the_log_alone_comes_once_to_its_present_end(directory: RunDirectory) -> None:
    append(directory.metrics, '{"event": "start"}\n')
    append(directory.log, "[0]<stdout>:zero\n[1]<stdout>:one\n[1]<stdout>:half")
    messages = list(follow(directory, None, log_from=0, rank=1, is_once=True))
    assert [m["type"] for m in messages] == ["state", "log", "log", "end"]
    assert [m["lines"] for m in messages[1:3]] == [["[1]<stdout>:one"], ["[1]<stdout>:half"]]


def test_reader_of_a_later_part_hears_that_the_master_lives(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Much time passes between two skipped blocks of the log, as on a slow file system."""
    append(directory.log, "a line\n" * 50_000)
    end(directory)
    now = itertools.count(0.0, HEARTBEAT_S)
    monkeypatch.setattr("agent.runs.follow.time.monotonic", lambda: next(now))
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


def test_a_log_is_followed_to_its_unfinished_last_line(directory: RunDirectory) -> None:
    append(directory.log, "one\n")
    sleep = steps(lambda: append(directory.log, "two\nthree"), lambda: end(directory))
    log = [m["lines"] for m in follow(directory, None, sleep, log_from=0) if m["type"] == "log"]
    assert log == [["one"], ["two"], ["three"]]


def test_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    assert list(Tail(tmp_path / "none").lines()) == []


def test_line_without_an_end_takes_bounded_memory(tmp_path: Path) -> None:
    """The sparse file looks like one line of 300 MiB."""
    path = tmp_path / "metrics.jsonl"
    with path.open("wb") as file:
        file.truncate(300 << 20)
    tail = Tail(path)
    tracemalloc.start()
    try:
        assert list(tail.lines()) == []
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    append(path, "\nnext\n")
    assert [len(line) for line in tail.lines()] == [MAX_LINE, len("next")]


def test_many_events_take_bounded_memory(directory: RunDirectory) -> None:
    kinds = ("start", "step", "step", "step")
    append(directory.metrics, "".join(f'{{"event":"{kinds[n % 4]}","time":{n},"step":{n}}}\n' for n in range(40_000)))
    tracemalloc.start()
    try:
        told = summary(directory.effective_state(), directory)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert told["last"] == {"event": "step", "time": 39_999, "step": 39_999}


def test_summary_of_giant_metrics_is_of_their_end(directory: RunDirectory) -> None:
    with directory.metrics.open("wb") as file:
        file.truncate(1 << 42)
    append(directory.metrics, '\n{"event":"epoch"}\n')
    began = time.process_time()
    assert summary(directory.effective_state(), directory)["epoch"] == {"event": "epoch"}
    assert time.process_time() - began < 60


def test_a_summary_holds_the_last_epoch(directory: RunDirectory) -> None:
    append(directory.metrics, '{"event":"epoch","epoch":1}\n{"event":"epoch","epoch":2}\n{"event":"step","step":3}\n')
    told = summary(directory.effective_state(), directory)
    assert (told["epoch"], told["last"]) == ({"event": "epoch", "epoch": 2}, {"event": "step", "step": 3})


@pytest.mark.parametrize("steps_after", [0, 2000, 20_000])
def test_a_summary_of_an_ended_run_reads_no_more_of_its_metrics_than_it_needs(
    directory: RunDirectory, steps_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = '{"event": "step", "padding": "' + "x" * 30 + '"}\n'
    append(directory.metrics, step * 200_000 + '{"event": "epoch", "epoch": 7}\n' + step * steps_after)
    end(directory)
    read: list[int] = []

    def lines(self: Tail, last_bytes: int) -> list[str]:
        read.append(last_bytes)
        return self.path.read_text()[-last_bytes:].splitlines()

    monkeypatch.setattr(Tail, "lines", lines)
    told = summary(directory.effective_state(), directory)
    assert (told["epoch"], told["last"]["event"]) == (
        {"event": "epoch", "epoch": 7},
        "step" if steps_after else "epoch",
    )
    wanted = len(step) * steps_after
    assert read == [
        size for size, before in zip(LAST_METRICS_BYTES, (0, 1 << 13, 1 << 18), strict=True) if before <= wanted
    ]
    directory.metrics.write_text(step)
    read.clear()
    assert summary(directory.effective_state(), directory)["epoch"] is None
    assert len(read) == 1, "that is all"


def test_a_summary_of_a_live_run_names_its_stragglers_until_they_keep_up_or_it_starts_again(
    directory: RunDirectory,
) -> None:
    def slow(rank: object, host: object = "", *, is_over: bool = False) -> str:
        record = {"event": "straggler", "rank": rank, "host": host or f"worker{rank}", "is_over": is_over}
        return json.dumps(record) + "\n"

    def reason(own: str = "") -> object:
        hosts = tuple(f"worker{number}" for number in range(9))
        state = dataclasses.replace(directory.effective_state(), state="running", reason=own, hosts=hosts)
        return summary(state, directory)["reason"]

    append(directory.metrics, slow(2) + slow(1))
    assert reason() == "straggler: rank 2 (worker2), rank 1 (worker1)"
    strange = (
        slow([]) + slow(True) + slow(-1, "worker1") + slow(1 << 70, "worker1") + slow(3, "a\nb") + slow(3, ["worker3"])
    )
    append(directory.metrics, strange + slow(2, is_over=True))
    assert reason() == "straggler: rank 1 (worker1)"
    append(directory.metrics, "".join(slow(rank) for rank in range(2, 9)))
    assert reason() == ("straggler: rank 1 (worker1), rank 2 (worker2), rank 3 (worker3), rank 4 (worker4) and 4 more")
    assert reason("a notice") == "a notice"
    append(directory.metrics, '{"event":"start"}\n')
    assert reason() == ""


def test_the_preflight_report_is_shown_once_and_not_again_after_reconnecting(directory: RunDirectory) -> None:
    directory.preflight.write_text('{"lines": ["all well"]}')
    append(directory.metrics, '{"event": "start"}\n')
    end(directory)
    for from_line, told in ((0, 1), (1, 0)):
        messages = [message for message in follow(directory, from_line) if message["type"] == "preflight"]
        assert len(messages) == told
    directory.preflight.write_text("{")
    assert not [message for message in follow(directory) if message["type"] == "preflight"]


def test_a_waiting_command_notices_that_its_reader_has_exited() -> None:
    reading, writing = os.pipe()
    sleep = sleep_while_read(writing)
    sleep(0.01)
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        sleep(60.0)
    os.close(writing)


def test_a_file_is_always_listened_to(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        sleep_while_read(file.fileno())(0.01)


@pytest.mark.root
def test_metrics_that_another_node_begins_to_write_are_seen_at_once(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    written = tmp_path / "server/metrics.jsonl"
    with nfs_client(tmp_path / "server", tmp_path / "client") as shared:
        tail = Tail(shared / "metrics.jsonl")
        assert list(tail.lines()) == []
        append(written, "one\n")
        assert list(tail.lines()) == ["one"]
        append(written, "two\n")
        assert list(tail.lines()) == ["two"]
