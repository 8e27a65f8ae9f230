"""Two writers of one run: a lost supervisor and its successor, and concurrent calls from two laptops."""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.runs import database, run_queue
from agent.runs.node_claims import LiveRunError, Runs
from agent.runs.run_directory import RunDirectory
from agent.spec.run_states import QUEUED
from agent.supervisor import cli
from agent.supervisor.resume_or_remove import remove
from tests.agent.supervisor.live_runs import Call, live_state, spec
from tests.factories import abandon, make_state
from tests.waiting import eventually


def test_run_that_was_resumed_is_not_marked_as_lost(ended: Runs) -> None:
    ended["one"].write_state(make_state(state="starting"))
    abandon("one")
    assert ended["one"].lost_state() is not None
    ended.claim("one", None)
    ended.mark_lost("one")
    assert ended["one"].stored_state().state == "starting"


def test_resumed_run_keeps_nodes_although_it_was_found_lost(tmp_path: Path) -> None:
    runs = Runs(root=tmp_path)
    runs.claim("one", None)
    abandon("one")
    assert runs.lost() == ["one"]
    runs.claim("one", None)
    assert not runs.release_lost("one")
    assert runs.live() == ["one"]
    runs.release("one")
    runs.claim("one", None)
    abandon("one")
    assert runs.release_lost("one")
    assert runs.claims() == ()


@pytest.fixture
def ended(tmp_path: Path) -> Runs:
    """Return the runs; `one` has ended."""
    runs = Runs(root=tmp_path / "runs")
    runs["one"].path.mkdir(parents=True)
    runs["one"].write_state(make_state(state="stopped"))
    return runs


def test_run_queued_meanwhile_is_not_removed(ended: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[bool] = []
    transaction = database.transaction

    def queue_first() -> object:
        if not queued:
            queued.append(True)
            ended["one"].write_state(make_state(state=QUEUED))
        return transaction()

    monkeypatch.setattr(database, "transaction", queue_first)
    with pytest.raises(LiveRunError, match="queued"):
        remove(ended, ended["one"])
    assert ended["one"].stored_state().state == QUEUED


@pytest.mark.parametrize("command", ["resume", "remove", "stop", "show", "status"])
def test_run_removed_meanwhile_by_another_laptop_is_unknown(
    efs: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = Runs(root=efs / "runs")
    runs["one"].path.mkdir(parents=True)
    runs["one"].write_state(make_state(state="stopped"))
    runs["one"].spec.write_text(spec(efs, "one", "exit 0"))
    look = cli.resolve

    def look_before_it_is_removed(there: Runs, run_id: str) -> RunDirectory:
        directory = look(there, run_id)
        remove(there, directory)
        return directory

    monkeypatch.setattr(cli, "resolve", look_before_it_is_removed)
    monkeypatch.setattr("sys.stdin", io.StringIO(spec(efs, "one", "exit 0")))
    assert cli.main(["--root", str(runs.root), command, *(["one"] if command != "resume" else [])]) == cli.NO_SUCH_RUN
    assert "unknown run one; " in capsys.readouterr().err
    assert (runs.live(), run_queue.ids()) == ([], [])


def test_one_of_two_concurrent_requeues_is_rejected(efs: Path, supervisor: Call) -> None:
    assert supervisor("start", stdin=spec(efs, "one", "exit 3")).returncode == 0
    eventually(lambda: json.loads((efs / "runs/one/state.json").read_text())["state"] == "failed")
    eventually(lambda: not Runs(root=efs / "runs").claims())
    supervisor("start", stdin=spec(efs, "two", "sleep 6000"))
    live_state(efs, "two")
    again = spec(efs, "one", "exit 0")
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: supervisor("resume", "--queue", stdin=again), range(2)))
    assert sorted(each.returncode for each in done) == [0, 3]
    assert len(list((efs / "runs/one").glob("spec-*.json"))) == 1
    assert run_queue.ids() == ["one"]
    supervisor("stop", "one")
    supervisor("stop", "two", "--grace", "0")
