"""The summary of a run: its last epoch and its stragglers, from metrics of any size."""

from __future__ import annotations

import dataclasses
import json
import time
import tracemalloc

import pytest

from agent.runs.run_directory import RunDirectory
from agent.runs.run_summary import LAST_METRICS_BYTES, summary
from agent.runs.tail import Tail
from tests.agent.runs.test_run_messages import append, end


def test_many_events_use_bounded_memory(directory: RunDirectory) -> None:
    kinds = ("start", "step", "step", "step")
    append(directory.metrics, "".join(f'{{"event":"{kinds[n % 4]}","time":{n},"step":{n}}}\n' for n in range(40_000)))
    tracemalloc.start()
    try:
        told = summary(directory.effective_state(), directory)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert told["last"] == {"event": "step", "time": 39_999, "step": 39_999}


def test_summary_reads_only_end_of_giant_metrics(directory: RunDirectory) -> None:
    with directory.metrics.open("wb") as file:
        file.truncate(1 << 42)
    append(directory.metrics, '\n{"event":"epoch"}\n')
    began = time.process_time()
    assert summary(directory.effective_state(), directory)["epoch"] == {"event": "epoch"}
    assert time.process_time() - began < 60


def test_summary_has_the_last_epoch(directory: RunDirectory) -> None:
    append(directory.metrics, '{"event":"epoch","epoch":1}\n{"event":"epoch","epoch":2}\n{"event":"step","step":3}\n')
    told = summary(directory.effective_state(), directory)
    assert (told["epoch"], told["last"]) == ({"event": "epoch", "epoch": 2}, {"event": "step", "step": 3})


@pytest.mark.parametrize("steps_after", [0, 2000, 20_000])
def test_summary_of_ended_run_reads_only_necessary_metrics(
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


def test_summary_names_stragglers_until_recovery_or_restart(
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
