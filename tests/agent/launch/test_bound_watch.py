"""Facts about the watch that a node keeps itself over a bounded run, with real processes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.launch import bound_watch
from agent.launch.bound_watch import BoundWatch
from agent.runs import spending
from agent.runs.directory import RunDirectory
from agent.runs.spending import Spent


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    found = RunDirectory(path=tmp_path / "runs" / "one")
    found.path.mkdir(parents=True)
    return found


@pytest.fixture
def rank(directory: RunDirectory) -> Iterator[subprocess.Popen[bytes]]:
    """Start a rank of the run that ignores SIGTERM."""
    environ = {"DEEPCDK_RUN": "one", "DEEPCDK_RUNS": str(directory.path.parent), "HOROVOD_RANK": "0"}
    with subprocess.Popen(["/bin/sh", "-c", "trap '' TERM; exec sleep 600"], env=environ) as process:
        yield process
        process.kill()


def ended_at(directory: RunDirectory, at: Callable[[float], None] = lambda now: None) -> float:
    """Look each second until the watch ends the ranks; return when that was. `at` is called before each look."""
    clock = Clock()
    watch = BoundWatch(directory, now=clock)
    while not watch.look():
        clock.now += 1.0
        assert clock.now < 5000
        at(clock.now)
    return clock.now


def test_ranks_that_live_past_the_bound_are_ended_although_they_ignore_sigterm(
    directory: RunDirectory, rank: subprocess.Popen[bytes]
) -> None:
    spending.write(directory, Spent(ends=1600.0))
    ended = ended_at(directory)
    assert rank.wait(timeout=10) == -9
    assert 1600 + spending.NODE_MARGIN_S <= ended <= 1600 + spending.NODE_MARGIN_S + 1
    assert spending.NODE_MARGIN_S < 60


def test_a_bound_that_a_restart_moved_is_read_again(directory: RunDirectory, rank: subprocess.Popen[bytes]) -> None:
    spending.write(directory, Spent(ends=1600.0))

    def at(now: float) -> None:
        if now == 1500:
            spending.write(directory, Spent(ends=3000.0))

    assert ended_at(directory, at) >= 3000


def test_a_bound_that_cannot_be_read_yet_ends_nothing(directory: RunDirectory, rank: subprocess.Popen[bytes]) -> None:
    def at(now: float) -> None:
        assert rank.poll() is None
        if now == 1003:
            spending.write(directory, Spent(ends=2000.0))

    assert ended_at(directory, at) >= 2000


def test_a_file_that_has_no_bound_is_not_read_each_second(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, reads = Clock(), []
    monkeypatch.setattr(spending, "read", lambda each: reads.append(clock.now))
    watch = BoundWatch(directory, now=clock)
    for _ in range(60):
        assert not watch.look()
        clock.now += 1.0
    assert reads == [1000.0, 1000.0 + bound_watch.READ_S]
