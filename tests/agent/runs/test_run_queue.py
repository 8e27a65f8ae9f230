"""The queue: its order, and that it contains only waiting runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from agent.runs import follow
from agent.runs import state as states
from agent.runs.run_queue import RunQueue
from agent.runs.store import Runs
from tests.factories import make_state


def queued(root: Path, names: Sequence[str]) -> RunQueue:
    """Return a queue of these waiting runs, each with its directory."""
    queue = RunQueue(runs=Runs(root=root))
    for name in names:
        directory = queue.runs[name]
        directory.path.mkdir(parents=True)
        directory.write_state(make_state(run_id=name, state="queued"))
        directory.spec.write_text("{}")
    return queue


def test_a_run_begins_once_and_with_the_spec_of_that_moment(tmp_path: Path) -> None:
    queue = queued(tmp_path, ["one", "two"])
    state = dataclasses.replace(queue.runs["one"].effective_state(), state="starting")
    assert queue.start(state, "new spec")
    assert not queue.start(state, "another")
    assert queue.runs["one"].spec.read_text() == "new spec"
    assert (queue.ids(), queue.position("one")) == (["two"], None)
    assert not queue.finish("one", "stopped", "too late")
    assert queue.runs["one"].stored_state().state == "starting"


def test_removed_run_leaves_the_queue(tmp_path: Path) -> None:
    queue = queued(tmp_path, ["one", "two"])
    states.forget("one")
    assert queue.ids() == ["two"]
    assert queue.describe_position("two") == "position 1 in the queue"
    assert queue.describe_position("one") == ""


def test_run_that_is_queued_again_is_last(tmp_path: Path) -> None:
    queue = queued(tmp_path, ["one", "two", "three"])
    assert queue.finish("one", "stopped", "")
    queue.runs["two"].write_state(make_state(run_id="two", state="queued", reason="it keeps its place"))
    queue.runs["one"].write_state(make_state(run_id="one", state="queued"))
    assert queue.ids() == ["two", "three", "one"]
    found = {each["run_id"]: each for each in follow.summaries(queue.runs)}
    assert [found[run_id]["position"] for run_id in queue.ids()] == [1, 2, 3]
    assert found["one"]["reason"] == "position 3 in the queue, after three"


def test_a_remark_is_made_on_those_who_wait_alone(tmp_path: Path) -> None:
    queue = queued(tmp_path, ["one"])
    queue.set_reason("one", "waiting: 2 nodes requested, but 1 ready")
    assert (
        json.loads((tmp_path / "one" / "state.json").read_text())["reason"] == "waiting: 2 nodes requested, but 1 ready"
    )
    queue.finish("one", "stopped", "out")
    queue.set_reason("one", "late")
    assert queue.runs["one"].effective_state().reason == "out"
