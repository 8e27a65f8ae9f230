"""The queue: its order, and that it contains only waiting runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from agent.runs import run_queue, run_summary
from agent.runs import stored_state as states
from agent.runs.node_claims import Runs
from tests.factories import make_state


def queued(root: Path, names: Sequence[str]) -> Runs:
    """Return the runs, after these were queued."""
    runs = Runs(root=root)
    for name in names:
        directory = runs[name]
        directory.path.mkdir(parents=True)
        directory.write_state(make_state(run_id=name, state="queued"))
        directory.spec.write_text("{}")
    return runs


def test_queued_run_starts_once_with_its_current_spec(tmp_path: Path) -> None:
    runs = queued(tmp_path, ["one", "two"])
    state = dataclasses.replace(runs["one"].effective_state(), state="starting")
    assert run_queue.dequeue(runs["one"], state, "new spec")
    assert not run_queue.dequeue(runs["one"], state, "another")
    assert runs["one"].spec.read_text() == "new spec"
    assert (run_queue.ids(), runs["one"].stored_state().state) == (["two"], "starting")
    assert not run_queue.finish(runs["one"], "stopped", "too late")
    assert runs["one"].stored_state().state == "starting"


def test_removed_run_leaves_the_queue(tmp_path: Path) -> None:
    runs = queued(tmp_path, ["one", "two"])
    states.forget("one")
    assert run_queue.ids() == ["two"]
    (told,) = run_summary.summaries(runs)
    assert told["reason"] == "position 1 in the queue"


def test_run_that_is_queued_again_is_last(tmp_path: Path) -> None:
    runs = queued(tmp_path, ["one", "two", "three"])
    assert run_queue.finish(runs["one"], "stopped", "")
    runs["two"].write_state(make_state(run_id="two", state="queued", reason="it keeps its place"))
    runs["one"].write_state(make_state(run_id="one", state="queued"))
    assert run_queue.ids() == ["two", "three", "one"]
    found = {each["run_id"]: each for each in run_summary.summaries(runs)}
    assert [found[run_id]["position"] for run_id in run_queue.ids()] == [1, 2, 3]
    assert found["one"]["reason"] == "position 3 in the queue, after three"


def test_only_queued_runs_get_a_reason_for_waiting(tmp_path: Path) -> None:
    runs = queued(tmp_path, ["one"])
    run_queue.set_reason(runs["one"], "waiting: 2 nodes requested, but 1 ready")
    assert (
        json.loads((tmp_path / "one" / "state.json").read_text())["reason"] == "waiting: 2 nodes requested, but 1 ready"
    )
    run_queue.finish(runs["one"], "stopped", "out")
    run_queue.set_reason(runs["one"], "late")
    assert runs["one"].effective_state().reason == "out"
