"""Ranks that train apart: a warning appears once nodes and time agree, and disappears if the ranks connect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.runs.run_directory import APART, LINKED, RunDirectory
from agent.runs.stored_state import State
from agent.supervisor.unconnected_ranks import ALONE_S, SAME_LINES, SAME_S, UnconnectedRanks
from tests.agent.supervisor import live_runs
from tests.agent.supervisor.live_runs import script_spec
from tests.factories import PROGRAM, make_nodes, make_program_spec, make_spec

ALONE = "no rank was connected to a rank on another node"
SAME = "all ranks print the same lines"


class Attempt:
    """One attempt of a run on two nodes, with a clock that the test sets."""

    def __init__(self, root: Path, **changes: Any) -> None:
        self.spec = make_program_spec(**{"hosts": make_nodes(2), **changes})
        self.directory = RunDirectory(path=root / self.spec.run_id)
        self.directory.path.mkdir()
        self.directory.log.write_text("[0]<stdout>:loss 1\n" * 9)  # from an earlier attempt
        self.now = 1000.0
        self.watch = UnconnectedRanks(self.spec, self.directory, clock=lambda: self.now)

    def print(self, *lines: str, rank: int, stream: str = "stdout") -> None:
        with self.directory.log.open("a") as log:
            log.writelines(f"[{rank}]<{stream}>:{line}\n" for line in lines)

    def report(self, kind: str, *nodes: int) -> None:
        for node in nodes:
            self.directory.link_report(kind, 1, self.spec.hosts[node].name).touch()

    def after(self, seconds: float) -> str:
        self.now += seconds
        self.watch.look()
        return self.watch.warning

    def at_end(self) -> str:
        self.watch.look_at_end(sleep=self._sleep)
        return self.watch.warning

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    return Attempt(tmp_path)


def test_ranks_without_a_connection_are_reported_a_minute_after_the_first_output(attempt: Attempt) -> None:
    attempt.report(APART, 0, 1)
    assert attempt.after(1000) == ""  # no output so far
    attempt.print("[placement] 1 socket", rank=0, stream="stderr")
    assert attempt.after(1000) == ""
    attempt.print("a", rank=0)
    assert attempt.after(5) == ""
    assert attempt.after(ALONE_S - 1) == ""
    assert ALONE in attempt.after(3)
    assert ALONE in attempt.at_end()


def test_lines_of_ranks_that_the_run_does_not_have_are_not_kept(attempt: Attempt) -> None:
    for rank in (0, 1, 2, 999_999_999):
        attempt.print("loss 1", rank=rank)
    attempt.after(3)
    assert sorted(attempt.watch._lines["stdout"]) == list(range(attempt.spec.ranks))


def test_warning_disappears_after_a_later_connection(attempt: Attempt) -> None:
    attempt.report(APART, 0, 1)
    attempt.print("a", rank=0)
    attempt.after(3)
    assert attempt.after(ALONE_S + 1)
    attempt.report(LINKED, 1)
    assert attempt.after(3) == ""
    assert attempt.after(1000) == ""


def test_program_that_communicates_only_at_its_end_is_not_reported(attempt: Attempt) -> None:
    attempt.report(APART, 0, 1)
    for rank in (0, 1):
        attempt.print(*(f"loss {step}" for step in range(9)), rank=rank)
    attempt.after(3)
    attempt.report(LINKED, 0)  # as a node does once the ranks have exited
    assert attempt.at_end() == ""


@pytest.mark.parametrize("nodes", [(), (0,), (1,)])
def test_node_without_report_does_not_count(attempt: Attempt, nodes: tuple[int, ...]) -> None:
    attempt.report(APART, *nodes)
    attempt.print("a", rank=0)
    attempt.after(3)
    assert attempt.after(2 * ALONE_S) == ""


def test_equal_lines_are_reported_sooner_and_at_the_end_of_a_short_run(attempt: Attempt) -> None:
    attempt.report(APART, 0, 1)
    for rank in (0, 1):
        # nanoGPT's lines: the times differ, the losses do not.
        attempt.print(*(f"iter {n}: loss 2.5{n}, time {90 + rank}.{n}ms, mfu 0.{rank}%" for n in range(9)), rank=rank)
    assert attempt.after(3) == ""
    assert SAME in attempt.after(SAME_S)
    assert SAME in attempt.at_end()


@pytest.mark.parametrize(
    ("lines", "others"),
    [
        (["loss 1"] * (SAME_LINES - 1),) * 2,
        (["no number"] * 9,) * 2,
        (["loss 1"] * 9, ["loss 2"] * 9),
        (["loss 1"] * 9, []),
    ],
)
def test_short_run_with_few_or_different_lines_is_not_reported(
    attempt: Attempt, lines: list[str], others: list[str]
) -> None:
    attempt.report(APART, 0, 1)
    attempt.print(*lines, rank=0)
    attempt.print(*others, rank=1)
    attempt.after(SAME_S + 3)
    assert attempt.after(SAME_S + 3) == ""
    assert attempt.at_end() == ""


def test_equal_lines_of_connected_ranks_are_averages(attempt: Attempt) -> None:
    attempt.report(LINKED, 0)
    for rank in (0, 1):
        attempt.print(*["loss 1"] * 9, rank=rank)
    assert attempt.after(1000) == attempt.after(1000) == attempt.at_end() == ""


@pytest.mark.parametrize("changes", [{"hosts": make_nodes(1)}, {"together": "no"}])
def test_single_ranks_and_runs_that_are_meant_to_be_apart_are_not_reported(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    attempt = Attempt(tmp_path, **changes)
    attempt.report(APART, 0)
    attempt.print("a", rank=0)
    attempt.after(3)
    assert attempt.after(1000) == attempt.at_end() == ""


def test_recipes_are_not_watched() -> None:
    assert not make_spec(hosts=make_nodes(2)).may_train_apart
    assert make_program_spec(hosts=make_nodes(1, slots=2)).may_train_apart


@pytest.mark.parametrize(("together", "stops"), [("auto", False), ("require", True)])
def test_only_require_stops_the_run(tmp_path: Path, together: str, stops: bool) -> None:
    attempt = Attempt(tmp_path, together=together)
    attempt.report(APART, 0, 1)
    attempt.print("a", rank=0)
    attempt.after(3)
    assert not attempt.watch.must_stop
    attempt.after(ALONE_S + 1)
    assert attempt.watch.must_stop == stops


PRINT = 'for n in 1 2 3 4 5 6; do echo "[0]<stdout>:loss $n"; echo "[1]<stdout>:loss $n"; done; '


def supervise(efs: Path, script: str, together: str) -> tuple[State, RunDirectory]:
    """Supervise a run on one node that reports its ranks apart; the launcher is this shell script."""
    hosts = make_nodes(1, slots=2)
    apart = RunDirectory(path=efs / "runs" / "one").link_report(APART, 1, hosts[0].name)
    program = {"program": PROGRAM, "payload": "", "command": ("train.py",), "hosts": hosts, "preflight": "skip"}
    spec = script_spec(efs, f"touch {apart}; {PRINT}{script}", together=together, **program)
    Path(spec.program_directory).mkdir(parents=True)
    return live_runs.supervise(spec)


def test_successful_run_keeps_the_warning(efs: Path) -> None:
    state, directory = supervise(efs, "exit 0", "auto")
    assert (state.state, SAME in state.reason) == ("succeeded", True)
    assert SAME in json.loads((directory.path / "course.json").read_text())["together"]
    assert SAME in directory.log.read_text()


def test_failed_run_has_its_own_reason(efs: Path) -> None:
    state, _ = supervise(efs, "exit 3", "auto")
    assert (state.state, "status 3" in state.reason) == ("failed", True)


@pytest.mark.parametrize("script", ["exit 0", "exec sleep 60"])
def test_require_fails_the_run_and_stops_it(efs: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr("agent.supervisor.unconnected_ranks.SAME_S", 1.0)
    state, _ = supervise(efs, script, "require")
    assert (state.state, "--together=require" in state.reason) == ("failed", True), state.reason
    assert state.reason.startswith("the ranks do not train together")
    assert "change the program or --launcher; if each rank should train its own model" in state.reason
