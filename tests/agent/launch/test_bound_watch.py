"""Facts about the watch that a node keeps itself over a bounded run, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.launch import bound_watch
from agent.remote.processes import parse_environment, parse_parent
from agent.runs import spending
from agent.runs.directory import RunDirectory
from agent.runs.spending import Spent
from agent.spec.bounds import Bounds
from tests.factories import AGENT, make_spec
from tests.waiting import eventually

PROJECT = Path(__file__).resolve().parents[3]


class Clock:
    """A clock on which sleeping takes no time."""

    def __init__(self) -> None:
        self.now, self.slept = 1000.0, 0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += 1


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


def test_ranks_that_live_past_the_bound_are_ended_although_they_ignore_sigterm(
    directory: RunDirectory, rank: subprocess.Popen[bytes]
) -> None:
    clock = Clock()
    spending.write(directory, Spent(ends=1600.0))
    assert bound_watch.watch(directory, sleep=clock.sleep, now=clock)
    assert rank.wait(timeout=10) == -9
    assert 1600 + spending.NODE_MARGIN_S <= clock.now <= 1600 + spending.NODE_MARGIN_S + 1
    assert spending.NODE_MARGIN_S < 60


def test_a_bound_that_a_restart_moved_is_read_again(directory: RunDirectory, rank: subprocess.Popen[bytes]) -> None:
    clock = Clock()
    spending.write(directory, Spent(ends=1600.0))

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.now >= 1500:
            spending.write(directory, Spent(ends=3000.0))

    assert bound_watch.watch(directory, sleep=sleep, now=clock)
    assert clock.now >= 3000


def test_a_bound_that_cannot_be_read_yet_ends_nothing(directory: RunDirectory, rank: subprocess.Popen[bytes]) -> None:
    clock = Clock()

    def sleep(seconds: float) -> None:
        assert rank.poll() is None
        clock.sleep(seconds)
        if clock.slept == 3:
            spending.write(directory, Spent(ends=2000.0))

    assert bound_watch.watch(directory, sleep=sleep, now=clock)
    assert clock.now >= 2000


def test_without_ranks_the_watch_ends(directory: RunDirectory) -> None:
    clock = Clock()
    spending.write(directory, Spent(ends=1e9))
    assert not bound_watch.watch(directory, sleep=clock.sleep, now=clock)
    assert clock.now <= 1000 + bound_watch.START_S + bound_watch.POLL_S


def watches(run_directory: str) -> list[int]:
    """Return the pids of the watches over a run."""
    found = []
    for path in Path("/proc").iterdir():
        try:
            words = (path / "cmdline").read_bytes().split(b"\0") if path.name.isdecimal() else []
        except OSError:
            continue
        if b"agent.launch.bound_watch" in words and os.fsencode(run_directory) in words:
            found.append(int(path.name))
    return found


def test_only_the_first_rank_of_a_node_in_a_bounded_run_leaves_a_watch_which_is_no_process_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "payloads" / AGENT).mkdir(parents=True)
    (tmp_path / "payloads" / AGENT / "agent").symlink_to(PROJECT / "agent")
    spec = make_spec(efs_mount=str(tmp_path), bounds=Bounds(max_hours=1.0))
    directory = RunDirectory(path=Path(spec.run_directory))
    directory.path.mkdir(parents=True)
    spending.write(directory, Spent(ends=time.time() + 600))
    monkeypatch.setenv("HOROVOD_RANK", "0")

    bound_watch.start(make_spec(efs_mount=str(tmp_path)), {})
    bound_watch.start(spec, {"HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "2"})
    assert not watches(spec.run_directory)
    bound_watch.start(spec, {"HOROVOD_LOCAL_RANK": "0", "HOROVOD_LOCAL_SIZE": "2"})
    (pid,) = eventually(lambda: watches(spec.run_directory))
    try:
        assert not parse_environment(Path(f"/proc/{pid}/environ").read_bytes()).keys() & {"HOROVOD_RANK", "DEEPCDK_RUN"}
        assert parse_parent(Path(f"/proc/{pid}/stat").read_text()) != os.getpid(), "the program has no child of ours"
    finally:
        os.kill(pid, signal.SIGKILL)
