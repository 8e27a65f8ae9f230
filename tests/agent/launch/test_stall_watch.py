"""Facts about when a node finds a rank stuck, with small real processes and a clock that jumps."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.launch.stall_watch import MAX_COUNTED_S, StallWatch
from agent.remote.processes import RunProcess, processes
from agent.runs.directory import RunDirectory
from tests.waiting import eventually

NODE = "deeplearning-worker1"
Start = Callable[..., subprocess.Popen[bytes]]


@dataclasses.dataclass(kw_only=True)
class Node:
    """A node on which a rank is stuck after 60 s."""

    directory: RunDirectory
    now: float = 0.0

    def __post_init__(self) -> None:
        self.directory.path.mkdir(parents=True)
        self.watch = StallWatch(self.directory, NODE, 60.0, clock=lambda: self.now)

    def ranks(self) -> list[RunProcess]:
        return [each for each in processes(str(self.directory.path.parent)) if each.is_rank]

    def look(self, passed_s: float = 10.0) -> list[int]:
        self.now += passed_s
        return self.watch.look(self.ranks())

    def looks(self, between: Callable[[], object] = lambda: None) -> list[list[int]]:
        """Look for 100 s, and return what was found stuck each time."""
        found = []
        for _ in range(10):
            between()
            found.append(self.look())
        return found


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(directory=RunDirectory(path=tmp_path / "runs" / "one"))


@pytest.fixture
def start(node: Node) -> Iterator[Start]:
    """Return a starter of ranks, which are killed at the end."""
    started = []

    def begin(script: str, rank: int, variable: str = "HOROVOD_RANK") -> subprocess.Popen[bytes]:
        environ = {"DEEPCDK_RUN": "one", "DEEPCDK_RUNS": str(node.directory.path.parent), variable: str(rank)}
        process = subprocess.Popen(["/bin/sh", "-c", script], env=environ)
        started.append(process)
        eventually(lambda: b"sh\0-c" not in Path(f"/proc/{process.pid}/cmdline").read_bytes() or "exec" not in script)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def cpu_ticks(process: subprocess.Popen[bytes]) -> int:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.parametrize("variable", ["HOROVOD_RANK", "DEEPCDK_RANK"])
def test_only_the_idle_rank_is_named_and_killed(node: Node, start: Start, variable: str) -> None:
    idle, busy = start("exec sleep 600", 0, variable), start("while :; do :; done", 1, variable)

    def compute() -> None:
        before = cpu_ticks(busy)
        eventually(lambda: cpu_ticks(busy) > before)

    for _ in range(7):
        compute()
        stuck = node.look()
    assert stuck == [0] and idle.wait(timeout=10) == -signal.SIGKILL
    assert node.directory.stalled(1, NODE).read_text() == "0"
    compute()
    assert node.look() == [] and busy.poll() is None


@pytest.mark.parametrize("name", ["launcher.log", "metrics.jsonl"])
def test_idle_rank_is_not_stuck_while_the_run_writes(node: Node, start: Start, name: str) -> None:
    start("exec sleep 600", 0)

    def write() -> None:
        with (node.directory.path / name).open("a") as file:
            file.write("a line\n")

    assert node.looks(write) == [[]] * 10


def test_stopped_rank_is_stuck_although_others_write(node: Node, start: Start) -> None:
    process = start("exec sleep 600", 3)
    process.send_signal(signal.SIGSTOP)
    eventually(lambda: ") T " in Path(f"/proc/{process.pid}/stat").read_text())

    def warn() -> None:
        with node.directory.log.open("a") as file:
            file.write("Horovod: stalled ranks: 3\n")

    assert [3] in node.looks(warn)
    assert process.wait(timeout=10) == -signal.SIGKILL


def test_time_in_which_the_node_slept_counts_little(node: Node, start: Start) -> None:
    start("exec sleep 600", 0)
    node.look()
    assert node.look(passed_s=3600.0) == []
    assert [node.look(passed_s=MAX_COUNTED_S) for _ in range(3)] == [[], [], [0]]
