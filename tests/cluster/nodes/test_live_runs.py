"""The protection of live runs: a task that would end a run stops if there is one, or if this is unknown."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from agent.spec.run_states import STOP_GRACE_S
from cluster.errors import ConnectionFailedError, HeldNodesError, LiveRunError, NoStackError
from cluster.nodes.live_runs import (
    LiveRuns,
    StopsRunError,
    check_live_runs,
    every_node_held,
    find_live_runs,
    stop_runs,
)
from cluster.nodes.occupancy import Occupancy


class FakeSession:
    """A cluster with a supervisor that reports a run, or with an unreachable master."""

    def __init__(self, *live: str, error: Exception | None = None, states: tuple[str, ...] = ("running",)) -> None:
        self.live, self.error = live, error
        self.deployed_stack = SimpleNamespace(master_group="m", efs_mount="/mnt/efs", status="CREATE_COMPLETE")
        self.instances = [SimpleNamespace(role="master", state=s) for s in states]
        self.stopped: list[tuple[str, float]] = []
        self.queued: tuple[str, ...] = ()
        self.holding: list[str] = []
        self.refusal: Exception | None = None

    def load_inventory(self) -> Any:
        return SimpleNamespace(instances=self.instances)

    def connect(self) -> Any:
        if self.error:
            raise self.error
        return self

    def __enter__(self) -> FakeSession:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def supervisor(self, master: object) -> Any:
        assert master is self
        runs = [{"run_id": "old", "state": "failed"}, *({"run_id": each, "state": "queued"} for each in self.queued)]
        return SimpleNamespace(
            occupancy=lambda: Occupancy(hosts=dict.fromkeys(self.live, ())),
            runs=lambda: runs,
            stop=lambda run, grace: self.stopped.append((run, grace)),
            hold=self.hold,
        )

    @contextlib.contextmanager
    def hold(self, task: str, nodes: Mapping[str, str], *, every: bool) -> Iterator[None]:
        if self.refusal:
            raise self.refusal
        assert not nodes and every
        self.holding.append(task)
        yield
        self.holding.remove(task)


def fake(*live: str, **how: Any) -> Any:
    return FakeSession(*live, **how)


def test_live_runs_are_reported_by_supervisor() -> None:
    assert find_live_runs(fake("one")) == LiveRuns(run_ids=("one",))
    assert find_live_runs(fake()) == LiveRuns()


def test_without_a_running_master_no_run_is_live() -> None:
    assert find_live_runs(fake("one", states=("terminated",))) == LiveRuns()
    never_whole = fake("one")
    never_whole.deployed_stack.master_group = ""
    without_files, without_master = fake("one"), fake("one")
    without_files.deployed_stack.efs_mount = ""
    without_master.instances = [SimpleNamespace(role="worker", state="running")]
    for session in (never_whole, without_files, without_master):
        assert find_live_runs(session) == LiveRuns()
    assert find_live_runs(fake(error=NoStackError("deepcdk", "us-east-1"))) == LiveRuns()


def test_invalid_answer_is_no_permission() -> None:
    unreachable = fake(error=ConnectionFailedError("no answer within 10 s\nand more", where="SSH"))
    with pytest.raises(StopsRunError, match="is unknown whether a run is live: no answer within 10 s") as caught:
        check_live_runs(unreachable, "the change", [], force=False)
    assert (caught.value.run_ids, "and more" in str(caught.value)) == ((), False)
    assert check_live_runs(unreachable, "the change", [], force=True).run_ids == ()


def test_force_stops_the_run_with_checkpoint() -> None:
    session = fake("one")
    told: list[str] = []
    stop_runs(session, check_live_runs(session, "the change", [], force=True).run_ids, told.append)
    assert session.stopped == [("one", STOP_GRACE_S)]
    assert "run one" in told[0]
    stop_runs(session, (), told.append)
    assert len(session.stopped) == 1


def held(session: Any, *, force: bool = False) -> tuple[list[str], list[str]]:
    """Hold every node for `fab down`; return the holders at that time and the reports."""
    reported: list[str] = []
    with every_node_held(session, "fab down", "the end", ["why"], force=force, report=reported.append):
        return [*session.holding], reported


def test_every_node_is_reserved_while_cluster_is_destroyed() -> None:
    session = fake()
    assert (held(session), session.holding) == ((["fab down"], []), [])


def test_run_started_meanwhile_stops_task_even_with_force() -> None:
    session = fake()
    session.refusal = LiveRunError("two", hosts={"two": ("deeplearning-worker1",)})
    for force in (False, True):
        with pytest.raises(StopsRunError, match="run two is live, and the end would stop it"):
            held(session, force=force)
    session.refusal = HeldNodesError({"fab scale": "terminating deeplearning-worker2"})
    with pytest.raises(HeldNodesError, match="`fab scale` on another machine is terminating deeplearning-worker2"):
        held(session, force=True)


def test_unreachable_master_is_an_error_unless_forced() -> None:
    unreachable = fake(error=ConnectionFailedError("no answer within 10 s"))
    with pytest.raises(StopsRunError, match="no answer within 10 s"):
        held(unreachable)
    holding, reported = held(unreachable, force=True)
    assert (holding, "no answer within 10 s" in reported[0]) == ([], True)
    destroyed = fake(error=AssertionError("nobody is to be asked"))
    destroyed.deployed_stack.status = "DELETE_IN_PROGRESS"
    assert (held(destroyed), find_live_runs(destroyed)) == (([], []), LiveRuns())


def test_rejection_has_run_reasons_and_fix() -> None:
    several = StopsRunError("the change", ["one", "two"], "", [])
    assert several.what == "runs one, two are live, and the change would stop them"
    assert "`fab stop --run one`, `fab stop --run two`" in several.remedy
    known = StopsRunError("the change", ["one"], "", ["2 nodes are terminated"])
    assert (known.run_ids, known.reasons) == (("one",), ("2 nodes are terminated",))
    assert "fab attach --run one" in known.remedy and f"{STOP_GRACE_S:g} s for its checkpoint" in known.remedy
    assert (
        str(known).partition("\n  do: ")[0] == "run one is live, and the change would stop it\n  2 nodes are terminated"
    )
    assert StopsRunError("the change", [], "no route", []).remedy == (
        "repeat when the master answers `fab status`, or repeat with --force, which ends a live run without a "
        "new checkpoint"
    )


def test_queued_runs_get_no_grace_time_and_are_reported() -> None:
    session, told = fake("one"), list[str]()
    session.queued = ("two", "three")
    stop_runs(session, ("one", "four"), told.append)
    assert session.stopped == [("three", 0.0), ("two", 0.0), ("one", STOP_GRACE_S), ("four", STOP_GRACE_S)]
    assert told[1:3] == [
        "removing run two from the queue",
        f"stopping run one, with {STOP_GRACE_S:g} s for its checkpoint",
    ]
