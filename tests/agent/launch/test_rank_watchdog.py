"""The watchdog of a run's ranks on a node: who starts it, how long it lives, and which ranks it kills."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.launch import rank_watchdog
from agent.launch.rank_watchdog import MAX_COUNTED_S, StallWatch
from agent.remote.processes import RunProcess, parse_environment, parse_parent
from agent.remote.processes import processes as run_processes
from agent.runs import run_cost
from agent.runs.run_cost import Spent
from agent.runs.run_directory import RunDirectory
from agent.spec.launchers import PLAIN
from agent.spec.run import RunSpec
from agent.spec.run_limits import RunLimits
from tests.factories import AGENT, make_nodes, make_program_spec
from tests.waiting import eventually

PROJECT = Path(__file__).resolve().parents[3]
ONE, TWO = make_nodes(2, slots=2)
PROGRAM = ("python", "-c", "import time; time.sleep(600)")
Start = Callable[..., subprocess.Popen[bytes]]


def watches(spec: RunSpec) -> list[int]:
    """Return the pids of the watchdogs of a run."""
    found = []
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (path / "cmdline").read_bytes().split(b"\0") if path.name.isdecimal() else []
            if b"agent.launch.rank_watchdog" in words and os.fsencode(spec.run_directory) in words:
                found.append(int(path.name))
    return found


@pytest.fixture
def specified(tmp_path: Path) -> Iterator[Callable[..., RunSpec]]:
    """Return a function that creates a run's spec with its agent. At the end, its watchdogs are killed."""
    made: list[RunSpec] = []

    def make(**changes: Any) -> RunSpec:
        values = {"efs_mount": str(tmp_path), "command": PROGRAM, "placement": "none", "hosts": (ONE, TWO), **changes}
        spec = make_program_spec(run_id=f"run-{len(made)}", **values)
        (tmp_path / "payloads").mkdir(exist_ok=True)
        if not (tmp_path / "payloads" / AGENT).exists():
            (tmp_path / "payloads" / AGENT).mkdir()
            (tmp_path / "payloads" / AGENT / "agent").symlink_to(PROJECT / "agent")
        Path(spec.working_directory).mkdir(parents=True)
        Path(spec.run_directory, "spec.json").write_text(spec.to_json())
        made.append(spec)
        return spec

    yield make
    for spec in made:
        for pid in watches(spec):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts ranks, which are killed at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(spec: RunSpec, rank: int, local_rank: int = 0, **variables: str) -> subprocess.Popen[bytes]:
        place = {"HOROVOD_RANK": str(rank), "HOROVOD_LOCAL_RANK": str(local_rank), "HOROVOD_LOCAL_SIZE": "2"}
        if spec.rank_launcher == PLAIN:
            place = {"LOCAL_RANK": str(local_rank), "LOCAL_WORLD_SIZE": "2", "DEEPCDK_RANK": str(rank)}
        environ = {"PATH": os.environ["PATH"], "DEEPCDK_RUN": spec.run_id, "DEEPCDK_RUNS": spec.runs_root}
        process = subprocess.Popen(
            [sys.executable, "-m", "agent.launch.rank", spec.run_directory],
            cwd=PROJECT,
            env={**environ, **place, "HOROVOD_HOSTNAME": TWO.name, **variables},
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def is_program(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a rank has become its program."""
    return b"time.sleep" in Path(f"/proc/{process.pid}/cmdline").read_bytes()


def test_first_rank_of_a_node_starts_the_watchdog_outside_of_the_run(
    specified: Callable[..., RunSpec], start: Start
) -> None:
    without = start(specified(), 2)
    spec = specified(stall_after_s=600, rank_launcher="plain")
    second = start(spec, 3, 1)
    eventually(lambda: is_program(second) and is_program(without))
    assert not watches(spec) and not watches(specified())
    first = start(spec, 2, 0)
    eventually(lambda: is_program(first))
    (pid,) = eventually(lambda: watches(spec))
    environ = parse_environment(Path(f"/proc/{pid}/environ").read_bytes())
    assert not environ.keys() & {"HOROVOD_RANK", "DEEPCDK_RANK", "DEEPCDK_RUN"}
    assert parse_parent(Path(f"/proc/{pid}/stat").read_text()) != first.pid


def test_limited_run_has_watchdog_that_stops_its_ranks(specified: Callable[..., RunSpec], start: Start) -> None:
    spec = specified(bounds=RunLimits(max_hours=1.0))
    run_cost.write_spent(RunDirectory(path=Path(spec.run_directory)), Spent(ends=time.time() - 1000.0))
    assert start(spec, 2).wait(timeout=60) == -signal.SIGKILL


class Clock:
    """A clock that sleeps without taking time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("first_s", "last_s"), [(0, 100), (20, 21)])
def test_watchdog_exits_with_last_rank_or_after_a_while_without_ranks(first_s: int, last_s: int) -> None:
    clock = Clock()
    assert not rank_watchdog.watch(list, None, None, sleep=clock.sleep, clock=clock)
    assert rank_watchdog.START_S <= clock.now - 1000 <= rank_watchdog.START_S + rank_watchdog.POLL_S
    rank, launcher = (RunProcess(pid=pid, parent=1, run_id="one", is_rank=pid == 2) for pid in (2, 3))
    clock = Clock()

    def look() -> list[RunProcess]:
        return [launcher, rank] if first_s <= clock.now - 1000 < last_s else [launcher]

    assert not rank_watchdog.watch(look, None, None, sleep=clock.sleep, clock=clock)
    assert last_s <= clock.now - 1000 <= last_s + rank_watchdog.POLL_S


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
    """Look once per second until the watchdog kills the ranks; return that time. `at` is called before each look."""
    clock = Clock()
    watch = rank_watchdog.LimitWatch(directory, now=clock)
    while not watch.kill_overdue():
        clock.now += 1.0
        assert clock.now < 5000
        at(clock.now)
    return clock.now


def test_ranks_beyond_limit_are_killed_even_if_they_ignore_sigterm(
    directory: RunDirectory, rank: subprocess.Popen[bytes]
) -> None:
    run_cost.write_spent(directory, Spent(ends=1600.0))
    ended = ended_at(directory)
    assert rank.wait(timeout=10) == -9
    assert 1600 + run_cost.NODE_MARGIN_S <= ended <= 1600 + run_cost.NODE_MARGIN_S + 1
    assert run_cost.NODE_MARGIN_S < 60


def test_limit_extended_by_restart_is_read_again(directory: RunDirectory, rank: subprocess.Popen[bytes]) -> None:
    run_cost.write_spent(directory, Spent(ends=1600.0))

    def at(now: float) -> None:
        if now == 1500:
            run_cost.write_spent(directory, Spent(ends=3000.0))

    assert ended_at(directory, at) >= 3000


def test_unreadable_limit_stops_nothing_and_is_not_read_every_second(
    directory: RunDirectory, rank: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, read = [], run_cost.read_spent

    def count(found: RunDirectory) -> Spent | None:
        reads.append(found)
        return read(found)

    monkeypatch.setattr(run_cost, "read_spent", count)

    def at(now: float) -> None:
        assert rank.poll() is None
        if now == 1003:
            run_cost.write_spent(directory, Spent(ends=2000.0))

    assert ended_at(directory, at) >= 2000
    assert len(reads) <= 4


NODE_NAME = "deeplearning-worker1"


@dataclasses.dataclass(kw_only=True)
class Node:
    """A node that reports a rank as stuck after 60 s."""

    directory: RunDirectory
    now: float = 0.0

    def __post_init__(self) -> None:
        self.directory.path.mkdir(parents=True)
        self.watch = StallWatch(self.directory, NODE_NAME, 60.0, clock=lambda: self.now)

    def ranks(self) -> list[RunProcess]:
        return [each for each in run_processes(str(self.directory.path.parent)) if each.is_rank]

    def look(self, passed_s: float = 10.0) -> list[int]:
        self.now += passed_s
        return self.watch.kill_stuck(self.ranks())

    def looks(self, between: Callable[[], object] = lambda: None) -> list[list[int]]:
        """Look for 100 s; return the stuck ranks of each look."""
        found = []
        for _ in range(10):
            between()
            found.append(self.look())
        return found


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(directory=RunDirectory(path=tmp_path / "runs" / "one"))


@pytest.fixture
def start_shell(node: Node) -> Iterator[Start]:
    """Return a function that starts ranks, which are killed at the end. It returns a `sleep` once it is waiting."""
    started = []

    def begin(script: str, rank: int, variable: str = "HOROVOD_RANK") -> subprocess.Popen[bytes]:
        environ = {"DEEPCDK_RUN": "one", "DEEPCDK_RUNS": str(node.directory.path.parent), variable: str(rank)}
        process = subprocess.Popen(["/bin/sh", "-c", script], env=environ)
        started.append(process)
        stat = Path(f"/proc/{process.pid}/stat")
        eventually(lambda: "(sleep) S " in stat.read_text() or "sleep" not in script)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def cpu_ticks(process: subprocess.Popen[bytes]) -> int:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_only_idle_rank_is_reported_and_killed(node: Node, start_shell: Start) -> None:
    idle, busy = start_shell("exec sleep 600", 0, "DEEPCDK_RANK"), start_shell("while :; do :; done", 1)

    def compute() -> None:
        before = cpu_ticks(busy)
        eventually(lambda: cpu_ticks(busy) > before)

    for _ in range(7):
        compute()
        stuck = node.look()
    assert stuck == [0] and idle.wait(timeout=10) == -signal.SIGKILL
    assert node.directory.stall_report(1, NODE_NAME).read_text() == "0"
    compute()
    assert node.look() == [] and busy.poll() is None


@pytest.mark.parametrize("name", ["launcher.log", "metrics.jsonl"])
def test_idle_rank_is_not_stuck_while_the_run_writes(node: Node, start_shell: Start, name: str) -> None:
    start_shell("exec sleep 600", 0)

    def write() -> None:
        with (node.directory.path / name).open("a") as file:
            file.write("a line\n")

    assert node.looks(write) == [[]] * 10


def test_stopped_rank_is_stuck_although_others_write(node: Node, start_shell: Start) -> None:
    process = start_shell("exec sleep 600", 3)
    process.send_signal(signal.SIGSTOP)
    eventually(lambda: ") T " in Path(f"/proc/{process.pid}/stat").read_text())

    def warn() -> None:
        with node.directory.log.open("a") as file:
            file.write("Horovod: stalled ranks: 3\n")

    assert [3] in node.looks(warn)
    assert process.wait(timeout=10) == -signal.SIGKILL


def test_suspended_time_of_node_hardly_counts(node: Node, start_shell: Start) -> None:
    start_shell("exec sleep 600", 0)
    node.look()
    assert node.look(passed_s=3600.0) == []
    assert [node.look(passed_s=MAX_COUNTED_S) for _ in range(3)] == [[], [], [0]]
