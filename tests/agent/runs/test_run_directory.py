"""Runs that continue by themselves after the loss of their supervisor, and their status until then."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.runs import trusted_spec
from agent.runs.node_claims import LiveRunError, Runs
from agent.runs.run_directory import RunDirectory
from tests.agent.lost_runs import lose
from tests.factories import make_node, make_nodes


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    (tmp_path / "runs").mkdir()
    return Runs(root=tmp_path / "runs")


def test_run_with_restarts_left_counts_as_live(runs: Runs) -> None:
    directory = lose(runs, faults=["a rank was killed"])
    state = directory.effective_state()
    assert (state.state, state.reason) == (
        "starting",
        "supervisor died (after 1 restart); the run continues automatically",
    )
    assert directory.stored_state().state == "running"
    assert (directory.continues, runs.is_over("one")) == (True, False)
    assert (runs.live(), runs.watched(), runs.lost()) == (["one"], ["one"], ["one"])


def test_nodes_of_restartable_run_stay_claimed(runs: Runs) -> None:
    lose(runs)
    for run_id, nodes, task in (("two", [make_node(2)], ""), ("three", None, "fab down"), ("one", make_nodes(2), "")):
        with pytest.raises(LiveRunError, match="run one is live"):
            runs.claim(run_id, nodes, task=task)
    runs.claim("two", [make_node(3)])
    assert runs.lost() == ["one"], "it is still to be taken up"


def not_begun(directory: RunDirectory) -> None:
    (directory.path / "course.json").write_text(json.dumps({"archive": "", "times": {}}))


@pytest.mark.parametrize(
    ("change", "is_watched"),
    [
        (lambda directory: directory.stop_request.write_text("{}"), True),
        (not_begun, True),
        (lambda directory: (directory.path / "course.json").unlink(), True),
        (lambda directory: (directory.path / "course.json").write_text('{"times": [], "restarts": 7}'), True),
        (lambda directory: (directory.path / "course.json").write_bytes(b"\xff["), True),
        (lambda directory: trusted_spec.forget("one"), False),
    ],
    ids=["stop", "not begun", "no course", "course of junk", "no JSON", "of another master"],
)
def test_stopped_unstarted_or_modified_lost_runs_fail(
    runs: Runs, change: Callable[[RunDirectory], object], is_watched: bool
) -> None:
    directory = lose(runs)
    change(directory)
    assert (directory.continues, directory.effective_state().state) == (False, "failed")
    assert (runs.live(), runs.held(), runs.lost()) == ([], [], ["one"])
    assert directory.is_watched == is_watched


@pytest.mark.parametrize(
    "changes", [{"restarts": 0}, {"launcher": ("true",), "command": (), "hosts": (), "interface": ""}]
)
def test_lost_run_without_restarts_fails(runs: Runs, changes: dict[str, Any]) -> None:
    directory = lose(runs, **changes)
    assert (directory.effective_state().reason, runs.live(), runs.watched()) == ("supervisor died", [], [])


def test_lost_run_fails_after_last_restart_with_their_number(runs: Runs) -> None:
    directory = lose(runs, faults=["a rank was killed", "its supervisor was lost"], restarts=2)
    assert not directory.continues
    assert directory.effective_state().reason == "supervisor died (after 2 restarts)"
    assert runs.watched() == ["one"], "that it has failed is told at once, too"


def test_lock_of_a_lost_run_is_taken_once(runs: Runs) -> None:
    lose(runs)
    assert runs.take_over("one") and not runs.take_over("one")
    assert (runs.live(), runs.lost()) == (["one"], [])
    runs.release("one")
    assert not runs.take_over("one")
