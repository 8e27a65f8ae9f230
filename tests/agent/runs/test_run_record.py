"""The record of a run: complete, without the values of variables, and with a cost only if all prices are known."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from agent.errors import SpecError
from agent.runs.node_claims import Runs
from agent.runs.run_directory import RunDirectory
from agent.runs.run_record import record, write_course, write_origin, write_record
from agent.runs.stored_state import State
from agent.spec.submission import Origin, Submission
from tests.factories import make_nodes, make_spec, make_state
from tests.nfs import nfs_client

SPEC = make_spec(run_id="one", hosts=make_nodes(1), environment=(("API_KEY", "s3cret"),))
ORIGIN = Origin(
    config={"workers": 2}, template_sha256="ab", instance_types={"i-00000001": "c5.2xlarge", "i-000000ff": "t3.medium"},
    master="i-000000ff", usd_per_hour={"c5.2xlarge": 0.34, "t3.medium": 0.0416}, diff="+a\n",
)  # fmt: skip


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    found = Runs(root=tmp_path)["one"]
    found.path.mkdir()
    found.spec.write_text(SPEC.to_json())
    return found


def ended(directory: RunDirectory) -> State:
    state = make_state(state="succeeded", started=0.0, updated=3600.0)
    directory.write_state(state)
    return state


def test_record_has_origin_and_result_of_run(directory: RunDirectory) -> None:
    write_origin(directory, ORIGIN)
    write_course(directory, {"times": {"launched": 5.0}})
    ended(directory)
    found = record(directory)
    assert found["origin"]["config"] == {"workers": 2}
    assert (found["origin"]["diff_bytes"], "diff" in found["origin"]) == (3, False)
    assert (directory.path / "source.diff").read_text() == "+a\n"
    assert found["course"]["times"] == {"launched": 5.0}
    assert found["usd"] == pytest.approx(0.3816)
    assert (found["state"]["state"], found["result"], found["attempts"]) == ("succeeded", None, 1)


def test_damaged_origin_says_nothing_about_spot(directory: RunDirectory) -> None:
    write_origin(directory, dataclasses.replace(ORIGIN, spot=("i-00000001",)))
    ended(directory)
    assert record(directory)["spot"] == {"hosts": 1, "usd": None, "prices_of": ""}
    origin = json.loads((directory.path / "origin.json").read_text())
    (directory.path / "origin.json").write_text(json.dumps({**origin, "spot_usd_per_hour": "free"}))
    assert record(directory)["spot"] is None


def test_record_has_cost_of_each_restart(directory: RunDirectory) -> None:
    write_origin(directory, ORIGIN)
    ended(directory)
    assert record(directory)["restart_costs"] == []
    write_course(directory, {"times": {}, "restarts": [{"time": 104.0, "for": "a node"}, "junk"]})
    events = [
        {"event": "step", "time": 100.0, "epoch": 1, "step": 9},
        {"event": "start", "time": 110.0, "resumed_from": "step-00000004"},
        {"event": "step", "time": 460.0, "epoch": 1, "step": 5},
    ]
    directory.metrics.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    unknown = {"went_on_at": None, "steps_lost": None, "seconds": None, "usd": None}
    assert record(directory)["restart_costs"] == [
        {"went_on_at": 4, "steps_lost": 5, "seconds": 360.0, "usd": pytest.approx(0.0382)},
        unknown,
    ]


def test_run_of_committed_sources_has_no_diff_and_no_digest_of_one(directory: RunDirectory) -> None:
    write_origin(directory, dataclasses.replace(ORIGIN, diff=""))
    ended(directory)
    origin = record(directory)["origin"]
    assert (origin["diff_bytes"], origin["diff_sha256"]) == (0, "")
    assert not (directory.path / "source.diff").exists()


def test_exported_record_has_names_but_not_values_of_variables(directory: RunDirectory) -> None:
    directory.launch_file.write_text(json.dumps({"command": ["x"], "rank_environment": dict(SPEC.environment)}))
    write_record(directory, ended(directory))
    text = (directory.path / "record.json").read_text()
    assert json.loads(text)["spec"]["environment"] == [["API_KEY", None]]
    assert json.loads(text)["launch"] == {"command": ["x"], "rank_environment": {"API_KEY": None}}
    assert "s3cret" not in text


def test_origin_of_earlier_attempt_is_kept_in_addition_to_new_one(directory: RunDirectory) -> None:
    write_origin(directory, Origin(stack="first"))
    write_origin(directory, Origin(stack="second"))
    stacks = [json.loads((directory.path / name).read_text())["stack"] for name in ("origin-1.json", "origin.json")]
    assert stacks == ["first", "second"]


def test_submission_is_parsed_unchanged_and_bare_spec_has_unknown_origin() -> None:
    submission = Submission(spec=SPEC, origin=ORIGIN)
    assert Submission.from_json(submission.to_json()) == submission
    assert Submission.from_json(SPEC.to_json()) == Submission(spec=SPEC)
    spec = json.loads(SPEC.to_json())
    origins: list[object] = [{"x": 1}, None, [], "x"]
    others = [json.dumps({"spec": spec, "origin": origin}) for origin in origins]
    for bad in ("", "[]", "{}", '{"spec": {}}', *others):
        with pytest.raises(SpecError):
            Submission.from_json(bad)


@pytest.mark.root
def test_record_includes_files_just_written_by_another_node(tmp_path: Path) -> None:
    (tmp_path / "server/one").mkdir(parents=True)
    with nfs_client(tmp_path / "server", tmp_path / "client") as shared:
        directory = Runs(root=shared)["one"]
        before = record(directory, make_state())
        assert (before["result"], before["checkpoints"]) == (None, [])
        (tmp_path / "server/one/checkpoints/step-00000001").mkdir(parents=True)
        (tmp_path / "server/one/result.json").write_text('{"test_accuracy": 1.0}')
        after = record(directory, make_state())
        assert (after["result"], after["checkpoints"]) == ({"test_accuracy": 1.0}, ["step-00000001"])


def test_directory_removed_during_count_is_skipped(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, another node renames or removes a checkpoint."""
    ended(directory)
    gone = directory.path / "checkpoints/.partial-step-00000001"
    gone.mkdir(parents=True)
    scandir = os.scandir

    def vanish(path: str | Path) -> object:
        if Path(path) == gone and gone.exists():
            gone.rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", vanish)
    assert record(directory)["files"] == 2
    assert not gone.exists()


def test_interrupted_write_keeps_previous_origin_once(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(directory)
    write_origin(directory, Origin(stack="first"))

    def interrupted(path: Path, content: str | bytes) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("agent.runs.run_directory.write_atomically", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_origin(directory, Origin(stack="second"))
    assert record(directory)["origin"]["stack"] == "first"
    write_origin(directory, Origin(stack="second"))
    assert record(directory)["origin"]["stack"] == "second"
    assert json.loads((directory.path / "origin-1.json").read_text())["stack"] == "first"
    assert not (directory.path / "origin-2.json").exists()


def test_symlink_in_place_of_an_origin_is_not_followed(directory: RunDirectory, tmp_path: Path) -> None:
    secret = tmp_path / "id_ed25519"
    secret.write_text("mine")
    ended(directory)
    for name in ("origin.json", "source.diff"):
        (directory.path / name).symlink_to(secret)
    write_origin(directory, Origin(stack="second", diff="-mine\n+theirs\n"))
    assert (secret.read_text(), (directory.path / "origin-1.json").is_symlink()) == ("mine", True)
    assert record(directory)["origin"]["stack"] == "second"
