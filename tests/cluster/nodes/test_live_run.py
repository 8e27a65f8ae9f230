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

    def supervisor(self, master: object) -> Any:
        assert master is self
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
    assert find_live_run(fake()) == LiveRun(run_id="", why_unknown="")


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


@pytest.mark.parametrize("state", ["pending", "stopped", "shutting-down"])
def test_a_master_that_does_not_run_has_no_run(state: str) -> None:
    assert find_live_run(fake(live="one", states=(state,))) == LiveRun(run_id="")


def test_a_stack_without_its_file_system_and_a_worker_without_a_master_have_no_run() -> None:
    without_files, without_master = fake(live="one"), fake(live="one")
    without_files.deployed_stack.efs_mount = ""
    without_master.instances = [SimpleNamespace(role="worker", state="running")]
    assert find_live_run(without_files) == find_live_run(without_master) == LiveRun(run_id="")


def test_without_a_live_run_nothing_is_refused() -> None:
    assert check_live_run(fake(), "the change", ["2 nodes end"], force=False) == ""


def test_why_it_is_not_known_is_one_line() -> None:
    found = find_live_run(fake(error=ConnectionFailedError("no answer\nand more", where="SSH")))
    assert found == LiveRun(run_id="", why_unknown="no answer")


def test_a_refusal_carries_the_run_its_reasons_and_what_to_do() -> None:
    known = EndsRunError("the change", "one", "", ["2 nodes end"])
    assert (known.run_id, known.reasons) == ("one", ("2 nodes end",))
    assert "fab attach --run one" in known.remedy and f"{STOP_GRACE_S:g} s for its checkpoint" in known.remedy
    assert str(known).partition("\n  do: ")[0] == "run one is live, and the change would end it\n  2 nodes end"
    assert EndsRunError("the change", "", "no route", []).remedy == (
        "restore the connection to the master, or repeat with --force, which ends any run"
    )


def test_waiting_runs_are_given_no_time_and_each_is_reported() -> None:
    session, told = fake(live="one"), list[str]()
    session.queued = ("two",)
    stop_runs(session, "one", told.append)
    assert session.stopped == [("two", 0.0), ("one", STOP_GRACE_S)]
    assert told == ["taking run two out of the queue", f"stopping run one, with {STOP_GRACE_S:g} s for its checkpoint"]
