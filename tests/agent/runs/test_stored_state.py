"""The states of runs in the database, their copies, and the summaries of ended runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.files.safe_read import read_regular
from agent.runs import database, run_summary, trusted_spec
from agent.runs import stored_state as states
from agent.runs.node_claims import Runs
from agent.runs.stored_state import State
from tests.factories import make_spec, make_state


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(root=tmp_path / "runs")


def copied(runs: Runs, state: State) -> State:
    """Write the copy of a state as another master did, and return the state."""
    runs[state.run_id].path.mkdir(parents=True, exist_ok=True)
    (runs[state.run_id].path / states.COPY).write_text(json.dumps(state.to_document()))
    return state


def test_new_master_imports_copies_in_the_order_of_the_queue(runs: Runs) -> None:
    ended = copied(runs, make_state(state="stopped", reason="over"))
    queued = [
        copied(runs, make_state(run_id=name, state="queued", started=at)) for name, at in (("b", 9.0), ("c", 8.0))
    ]
    for state in queued:
        trusted_spec.accept(make_spec(run_id=state.run_id))
    copied(runs, make_state(run_id="d", state="queued"))
    states.import_copies(runs.root)
    assert (runs["one"].stored_state(), runs.ids()) == (ended, ["b", "c", "d", "one"])
    assert database.rows("SELECT run_id FROM states WHERE place > 0 ORDER BY place") == [("c",), ("b",)]
    lost = runs["d"].stored_state()
    assert (lost.state, "to queue it again: `fab resume d`" in lost.reason) == ("failed", True), "its spec is missing"


def test_newer_state_of_copy_and_database_counts(runs: Runs) -> None:
    for name in ("older", "newer"):
        states.store(make_state(run_id=name, updated=5.0))
    copied(runs, make_state(run_id="older", state="failed", updated=4.0))
    copied(runs, make_state(run_id="newer", state="failed", updated=6.0))
    states.import_copies(runs.root)
    assert [(each.run_id, each.state) for each in states.every()] == [("newer", "failed"), ("older", "running")]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"run_id": "one"}', json.dumps(make_state(run_id="two").to_document()), "null"]
)
def test_invalid_copies_are_skipped(runs: Runs, text: str) -> None:
    copied(runs, make_state(run_id="good"))
    runs["one"].path.mkdir()
    (runs["one"].path / states.COPY).write_text(text)
    copied(runs, make_state(run_id="x" * 200))
    states.import_copies(runs.root)
    assert runs.ids() == ["good"]


def test_run_that_ended_after_the_backup_is_not_restored_as_running(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    runs["one"].path.mkdir(parents=True)
    states.import_copies(runs.root)
    runs["one"].write_state(make_state(updated=5.0))
    database.backup()
    ended = make_state(state="succeeded", updated=6.0)
    runs["one"].write_state(ended)
    (Path.home() / database.FILE).write_bytes(b"damaged" * 1000)
    states.import_copies(runs.root)
    assert runs["one"].stored_state() == ended
    assert "the database of runs is damaged" in capsys.readouterr().err
    copied(runs, make_state(state="failed", updated=7.0))
    states.import_copies(runs.root)
    assert runs["one"].stored_state() == ended, "the database is complete"


def test_files_of_an_ended_run_are_read_for_one_list_only(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def recorded(path: Path, *limit: int) -> bytes:
        read.append(path.parent.name)
        return read_regular(path, *limit)

    monkeypatch.setattr("agent.runs.run_directory.read_regular", recorded)
    for name, state in (("ended", "succeeded"), ("waits", "queued")):
        runs[name].path.mkdir(parents=True)
        runs[name].metrics.write_text('{"event": "epoch", "epoch": 3}\n')
        runs[name].write_state(make_state(run_id=name, state=state))
    first = json.loads(json.dumps(run_summary.summaries(runs)))  # as the laptop reads it
    assert {"ended", "waits"} == set(read)
    read.clear()
    assert json.loads(json.dumps(run_summary.summaries(runs))) == first
    assert set(read) == {"waits"}
    assert (first[0]["epoch"], first[0]["state"]) == ({"event": "epoch", "epoch": 3}, "succeeded")
    runs["ended"].write_state(make_state(run_id="ended", state="queued"))
    assert [each["position"] for each in run_summary.summaries(runs)] == [2, 1], "it was resumed"
