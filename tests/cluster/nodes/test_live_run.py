"""Facts about the guard of live runs: a run, or the doubt whether there is one, stops what would end it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agent.spec.states import STOP_GRACE_S
from cluster.errors import ConnectionFailedError, NoStackError
from cluster.nodes.live_run import EndsRunError, LiveRun, check_live_run, find_live_run, stop_runs


class FakeSession:
    """A cluster whose supervisor answers with a run, or whose master cannot be reached."""

    def __init__(self, live: str = "", error: Exception | None = None, states: tuple[str, ...] = ("running",)) -> None:
        self.live, self.error = live, error
        self.deployed_stack = SimpleNamespace(master_group="m", efs_mount="/mnt/efs")
        self.instances = [SimpleNamespace(role="master", state=s) for s in states]
        self.stopped: list[tuple[str, float]] = []
        self.queued: tuple[str, ...] = ()

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

    def supervisor(self, _: object) -> Any:
        runs = [{"run_id": "old", "state": "failed"}, *({"run_id": each, "state": "queued"} for each in self.queued)]
        return SimpleNamespace(
            live=lambda: self.live,
            runs=lambda: runs,
            stop=lambda run, grace: self.stopped.append((run, grace)),
        )


def fake(**how: Any) -> Any:
    return FakeSession(**how)


def test_the_supervisor_tells_what_is_live() -> None:
    assert find_live_run(fake(live="one")) == LiveRun(run_id="one")
    assert find_live_run(fake()) == LiveRun(run_id="")


def test_without_a_running_master_no_run_is_live() -> None:
    assert find_live_run(fake(live="one", states=("terminated",))) == LiveRun(run_id="")
    never_whole = fake(live="one")
    never_whole.deployed_stack.master_group = ""
    assert find_live_run(never_whole) == LiveRun(run_id="")
    assert find_live_run(fake(error=NoStackError("deepcdk", "us-east-1"))) == LiveRun(run_id="")


def test_a_live_run_stops_what_would_end_it() -> None:
    with pytest.raises(EndsRunError, match=r"(?s)run one is live, and the change would end it.*2 nodes end") as caught:
        check_live_run(fake(live="one"), "the change", ["2 nodes end"], force=False)
    assert "--force" in caught.value.remedy
    assert "fab stop --run one" in caught.value.remedy


def test_doubt_is_no_permission() -> None:
    unreachable = fake(error=ConnectionFailedError("no answer within 10 s"))
    with pytest.raises(EndsRunError, match="is not known whether there is one: no answer within 10 s") as caught:
        check_live_run(unreachable, "the change", [], force=False)
    assert caught.value.run_id == ""
    assert check_live_run(unreachable, "the change", [], force=True) == ""


def test_what_is_forced_ends_the_run_with_a_checkpoint() -> None:
    session = fake(live="one")
    told: list[str] = []
    stop_runs(session, check_live_run(session, "the change", [], force=True), told.append)
    assert session.stopped == [("one", STOP_GRACE_S)]
    assert "run one" in told[0]
    stop_runs(session, "", told.append)
    assert len(session.stopped) == 1


def test_what_waits_does_not_begin_when_the_live_run_is_stopped() -> None:
    session = fake(live="one")
    session.queued = ("two", "three")
    stop_runs(session, "one", lambda _: None)
    assert [run for run, _ in session.stopped] == ["three", "two", "one"]
