"""Claims on nodes: states are true, and no two claims share a node."""

from __future__ import annotations

import dataclasses
import errno
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import SpecError
from agent.runs import liveness
from agent.runs.node_claims import LiveRunError, Runs
from agent.runs.run_directory import RunDirectory
from agent.spec.run_id import is_run_id
from tests.factories import abandon, make_node, make_nodes, make_spec, make_state
from tests.words import WORDS


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    found = Runs(root=tmp_path)["one"]
    found.path.mkdir()
    return found


@given(text=WORDS | st.from_regex(r"[a-z0-9.-]{0,130}", fullmatch=True))
def test_launch_accepts_only_valid_run_ids(text: str) -> None:
    try:
        make_spec(run_id=text)
        taken = True
    except SpecError:
        taken = False
    assert is_run_id(text) == taken
    assert not taken or (Path("/runs") / text).parent == Path("/runs")


def test_state_is_read_back_and_copied_for_users(directory: RunDirectory) -> None:
    with pytest.raises(FileNotFoundError, match="run one has no state"):
        directory.stored_state()
    liveness.hold("one")
    state = make_state(exit_code=3, last_lines=("a", "b"))
    directory.write_state(state)
    assert directory.stored_state() == state
    assert json.loads((directory.path / "state.json").read_text()) == json.loads(json.dumps(state.to_document()))
    shown = directory.effective_state()
    assert shown == dataclasses.replace(state, updated=liveness.last_beat("one")), "the last heartbeat"


def test_live_state_without_supervisor_counts_as_failed_and_is_unchanged_in_storage(
    directory: RunDirectory,
) -> None:
    directory.log.write_text("a\nb\n")
    directory.write_state(make_state())
    abandon("one")
    told = directory.effective_state()
    assert (told.state, told.reason, told.last_lines) == ("failed", "supervisor died", ("a", "b"))
    assert directory.lost_state() == directory.stored_state()
    directory.mark_failed(told.reason)
    stored = directory.stored_state()
    assert (stored.state, stored.reason, stored.last_lines) == ("failed", "supervisor died", ("a", "b"))
    assert (stored.updated > told.updated, directory.lost_state()) == (True, None)


@pytest.mark.parametrize("obstacle", ["full", "link", "directory", "no directory"])
def test_state_is_stored_even_if_its_copy_cannot_be_written(
    tmp_path: Path, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, elsewhere = Runs(root=tmp_path)["one"], tmp_path / "elsewhere"

    def refuse(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    if obstacle != "no directory":
        directory.path.mkdir()
    match obstacle:
        case "full":
            monkeypatch.setattr("agent.runs.run_directory.write_atomically", refuse)
        case "link":
            elsewhere.write_text("kept")
            (directory.path / "state.json").symlink_to(elsewhere)
        case "directory":
            (directory.path / "state.json").mkdir()
    directory.write_state(make_state(state="failed", reason="status 1"))
    shown = directory.effective_state().reason
    assert shown.startswith("status 1") and ("full" in shown) == (obstacle == "full")
    assert not elsewhere.exists() or elsewhere.read_text() == "kept"


def test_master_does_not_read_the_copy_of_a_state(tmp_path: Path) -> None:
    directory = Runs(root=tmp_path)["one"]
    directory.path.mkdir()
    directory.write_state(make_state(state="stopped"))
    (directory.path / "state.json").write_text('{"state": "running"}')
    assert directory.effective_state().state == "stopped"
    (directory.path / "state.json").unlink()
    assert (directory.effective_state().state, Runs(root=tmp_path).ids()) == ("stopped", ["one"])


def test_state_stored_while_the_lock_is_checked_counts(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.write_state(make_state())

    def end_meanwhile(run_id: str) -> bool:
        directory.write_state(make_state(state="succeeded"))
        return False

    monkeypatch.setattr(liveness, "is_held", end_meanwhile)
    assert directory.effective_state().state == "succeeded"


def test_lock_is_held_until_released_and_contains_its_run(tmp_path: Path) -> None:
    runs = Runs(root=tmp_path / "runs")
    assert runs.live() == []
    runs.claim("one", make_nodes(2))
    assert runs.live() == ["one"]
    with pytest.raises(LiveRunError, match="run one is live; run one uses deeplearning-worker1, deeplearning-worker2"):
        runs.claim("two", make_nodes(3)[1:])
    runs.release("two")
    assert runs.live() == ["one"]
    runs.release("one")
    assert runs.claims() == ()
    runs.claim("two", make_nodes(3)[1:])


def test_runs_on_different_nodes_are_concurrent_unless_one_claims_all(tmp_path: Path) -> None:
    runs = Runs(root=tmp_path / "runs")
    runs.claim("one", make_nodes(2))
    runs.claim("two", [make_node(3)])
    assert [(claim.run_id, claim.names) for claim in runs.held()] == [
        ("one", ("deeplearning-worker1", "deeplearning-worker2")), ("two", ("deeplearning-worker3",)),
    ]  # fmt: skip
    for hosts in (None, [make_node(3, instance_id="i-0000000b")], [make_node(4, instance_id="i-00000003")]):
        with pytest.raises(LiveRunError):
            runs.claim("three", hosts)
    with pytest.raises(LiveRunError, match="run two is live"):
        runs.claim("two", [make_node(5)])
    runs.release("one")
    assert runs.live() == ["two"], "of two, each lets go its own"
    runs.release("two")
    runs.claim("three", None)
    with pytest.raises(LiveRunError, match="run three is live; run three uses every node"):
        runs.claim("four", [make_node(9)])


def test_run_moves_to_free_nodes(tmp_path: Path) -> None:
    runs = Runs(root=tmp_path / "runs")
    runs.claim("one", make_nodes(2))
    runs.claim("two", [make_node(3)])
    with pytest.raises(LiveRunError, match="run two is live"):
        runs.move("one", [make_node(1), make_node(3)])
    runs.move("one", [make_node(1), make_node(4)])
    assert next(claim.names for claim in runs.held()) == ("deeplearning-worker1", "deeplearning-worker4")
    runs.claim("three", [make_node(2)])
    runs.release("one")
    with pytest.raises(RuntimeError, match="run one has no claim on nodes any more"):
        runs.move("one", [make_node(5)])


def test_nodes_of_run_without_supervisor_are_claimed_and_run_is_stored_as_failed(tmp_path: Path) -> None:
    runs = Runs(root=tmp_path)
    runs["one"].path.mkdir()
    runs["one"].write_state(make_state())
    runs.claim("one", make_nodes(2))
    abandon("one")
    runs.claim("two", make_nodes(1))
    assert (runs.live(), [claim.run_id for claim in runs.claims()]) == (["two"], ["two"])
    assert json.loads((tmp_path / "one" / "state.json").read_text())["state"] == "failed"
