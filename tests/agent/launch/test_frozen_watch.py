"""Facts about when a rank counts as frozen, what is reported of it, and which processes are killed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.launch.frozen_watch import MOST_COUNTED_S, FrozenWatch
from agent.launch.rank_states import ProcessState, RankProcess
from agent.runs import frozen_report
from agent.runs.directory import RunDirectory
from agent.runs.frozen_report import FrozenRank
from tests.factories import make_nodes

(NODE,) = HOSTS = make_nodes(1, slots=4)
AFTER_S = 10.0


def process(
    pid: int = 100, state: str = "T", rank: int | None = 3, *, cpu: int = 50, start: int = 7, own: bool = True
) -> RankProcess:
    stat = ProcessState(pid=pid, name="python3", state=state, cpu_ticks=cpu, threads=14, start_ticks=start)
    return RankProcess(process=stat, rank=rank, is_own=own)


@dataclasses.dataclass(kw_only=True)
class Node:
    """A node whose clock goes on by a second before each look."""

    directory: RunDirectory
    clock: float = 5000.0
    killed: list[int] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = FrozenWatch(
            self.directory, NODE.name, AFTER_S, waits=lambda pid: f"14 in stop_{pid}",
            clock=lambda: self.clock, now=lambda: self.clock + 1e9, kill=self.killed.append,
        )  # fmt: skip

    def look(self, *found: RankProcess, passes_s: float = 1.0) -> list[int]:
        self.clock += passes_s
        return self.watch.look(found)

    def looks(self, count: int, *found: RankProcess) -> list[int]:
        """Look so often, and return what was killed by the last look; nothing may be killed before."""
        for _ in range(count - 1):
            assert self.look(*found) == []
        return self.look(*found)

    def reported(self) -> Sequence[FrozenRank]:
        return [each for node in frozen_report.read(self.directory, HOSTS) for each in node.ranks]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(directory=RunDirectory(path=tmp_path))


def test_a_rank_that_is_stopped_for_as_long_is_reported_and_killed(node: Node) -> None:
    assert node.looks(11, process(), process(101, "S", 2)) == [100]
    assert node.killed == [100]
    (seen,) = node.reported()
    assert dataclasses.replace(seen, since=0.0) == FrozenRank(
        rank=3, pid=100, name="python3", state="T", since=0.0, seconds=10.0, threads=14, waits="14 in stop_100"
    )
    assert seen.since == 5001.0 + 1e9


@pytest.mark.parametrize("state", ["R", "S", "D", "t", "Z", "X"])
def test_a_rank_that_runs_waits_or_is_held_by_a_debugger_is_not_frozen(node: Node, state: str) -> None:
    assert node.looks(100, process(state=state)) == []
    assert not node.reported()


@pytest.mark.parametrize("between", [process(state="S"), process(cpu=51), process(start=8)])
def test_one_that_has_run_meanwhile_or_is_another_process_counts_from_the_beginning(
    node: Node, between: RankProcess
) -> None:
    node.looks(10, process())
    assert node.look(between) == []
    assert node.looks(10, process()) == []
    assert node.look(process()) == [100]


def test_time_in_which_nothing_was_seen_counts_little(node: Node) -> None:
    node.look(process())
    assert node.look(process(), passes_s=3600.0) == [], "the whole node was stopped, or the machine slept"
    assert node.looks(int(AFTER_S - MOST_COUNTED_S) - 1, process()) == []
    assert node.look(process()) == [100]


def test_all_of_a_ranks_own_processes_go_with_the_one_that_is_stopped_and_what_stands_above_reports_it(
    node: Node,
) -> None:
    shell, program, loader = process(90, "S", own=False), process(100, "S"), process(101, "T")
    other = process(102, "S", 2)
    assert node.looks(11, shell, program, loader, other) == [100, 101]
    assert [seen.pid for seen in node.reported()] == [101]


def test_what_stands_above_a_rank_is_killed_where_it_is_stopped_itself(node: Node) -> None:
    assert node.looks(11, process(90, "T", own=False), process(100, "S")) == [90, 100]
    assert node.looks(11, process(80, "T", None, own=False), process(101, "S", 2)) == [80]
    assert [seen.rank for seen in node.reported()] == [None, 3]


def test_ranks_that_are_stopped_one_after_the_other_are_all_in_the_report(node: Node) -> None:
    for _ in range(3):
        node.look(process(rank=0))
    found = [node.look(process(rank=0), process(101, rank=1)) for _ in range(12)]
    assert next(pids for pids in found if pids) == [100]
    assert sorted(set(node.killed)) == [100, 101]
    assert [seen.rank for seen in node.reported()] == [0, 1]


def test_a_report_that_cannot_be_written_keeps_no_rank_alive(tmp_path: Path) -> None:
    node = Node(directory=RunDirectory(path=tmp_path / "missing"))
    assert node.looks(11, process()) == [100]
