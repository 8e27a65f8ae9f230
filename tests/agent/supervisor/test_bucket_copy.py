"""The copy of a run in the bucket: its content, the exclusions, and reported failures."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.remote.ssh import Completed
from agent.runs.node_claims import Runs
from agent.runs.run_directory import RunDirectory
from agent.runs.run_record import write_origin
from agent.spec.submission import Origin
from agent.supervisor import bucket_copy
from agent.supervisor.bucket_copy import Copier, command, destination, refresh_command
from tests.nfs import nfs_client


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """Return the directory of a run that is archived in a bucket; the AWS CLI is installed."""
    found = Runs(root=tmp_path)["one"]
    found.path.mkdir()
    write_origin(found, Origin(bucket="deepcdk-runbucket-1", region="eu-west-1"))
    return found


@pytest.fixture(autouse=True)
def cli(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.supervisor.bucket_copy.shutil.which", lambda _: "/usr/bin/aws")


class Cli:
    """Record commands and answer each with a status and an output."""

    def __init__(self, status: int = 0, output: str = "") -> None:
        self.answer = Completed(status=status, output=output)
        self.commands: list[list[str]] = []

    def __call__(self, words: Sequence[str], timeout_s: float) -> Completed:
        self.commands.append(list(words))
        return self.answer


def test_copy_goes_to_prefix_of_run_without_secret_or_large_files(
    directory: RunDirectory,
) -> None:
    cli = Cli()
    assert Copier(directory, cli).finish() == ""
    _, words = cli.commands
    assert words[:6] == ["nice", "aws", "s3", "sync", str(directory.path), "s3://deepcdk-runbucket-1/runs/one"]
    assert words[words.index("--region") + 1] == "eu-west-1"
    excluded = {words[n + 1] for n, word in enumerate(words) if word == "--exclude"}
    assert {"checkpoints/*", "spec*.json", "launch.json", "state.json", ".*"} <= excluded
    assert "work/*" not in excluded


def test_large_working_directory_is_reported_and_not_copied(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_copy, "WORK_LIMIT", 3)
    (directory.path / "work").mkdir()
    (directory.path / "work" / "data").write_text("four")
    cli = Cli()
    assert Copier(directory, cli).finish() == "work/ was not copied: it has 4 bytes, the limit is 3"
    assert "work/*" in cli.commands[-1]


def test_failed_copy_reports_reason(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Copier(directory, Cli(1, "upload failed\nAccess Denied\n")).finish() == "Access Denied"
    assert Copier(directory, Cli(124)).finish() == "status 124"
    monkeypatch.setattr("agent.supervisor.bucket_copy.shutil.which", lambda _: None)
    assert Copier(directory, Cli()).finish() == "the AWS CLI is not installed on the master"


@pytest.mark.parametrize("content", [None, '{"bucket": "", "region": ""}'])
def test_without_a_bucket_nothing_is_copied(directory: RunDirectory, content: str | None) -> None:
    path = directory.path / "origin.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    cli = Cli()
    copier = Copier(directory, cli)
    assert (destination(directory)[0], copier.is_due, copier.finish(), cli.commands) == ("", False, "", [])


@pytest.mark.parametrize(
    ("content", "reason"),
    [("{", "is invalid: "), ("[]", "is invalid: a value"), ("{}", "invalid: 'bucket' is missing"), (None, "be read: ")],
)
def test_unreadable_origin_is_reported_as_the_reason_for_the_missing_copy(
    directory: RunDirectory, content: str | None, reason: str
) -> None:
    path = directory.path / "origin.json"
    path.unlink()
    if content is None:
        path.mkdir()
    else:
        path.write_text(content)
    copier = Copier(directory, Cli())
    trouble = copier.finish()
    assert (copier.address, copier.is_due, str(path) in trouble, reason in trouble) == ("", False, True, True)


def test_copies_are_made_at_intervals(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_copy, "command", lambda *_, **__: ["true"])
    now = [0.0]
    monkeypatch.setattr("agent.supervisor.bucket_copy.time.monotonic", lambda: now[0])
    copier = Copier(directory, Cli())
    due = [copier.is_due]
    copier.start()
    due.append(copier.is_due)
    assert copier.finish() == ""  # also ends the copy in the background
    now[0] = bucket_copy.PERIOD_S
    assert [*due, copier.is_due] == [True, False, True]


def test_unknown_region_is_omitted(directory: RunDirectory) -> None:
    assert "--region" not in command(directory, "s3://b/runs/one", "")
    assert json.loads((directory.path / "origin.json").read_text())["region"] == "eu-west-1"


def test_sizes_are_refreshed_before_the_last_copy(directory: RunDirectory) -> None:
    cli = Cli()
    Copier(directory, cli).finish()
    asked, copied = cli.commands
    assert asked == refresh_command(directory)
    assert "sync" in copied


@pytest.mark.root
def test_sizes_are_current_after_refresh(tmp_path: Path) -> None:
    (tmp_path / "server/one/below").mkdir(parents=True)
    written = tmp_path / "server/one/below/a file"
    written.write_text("four")
    with nfs_client(tmp_path / "server", tmp_path / "client") as shared:
        seen = shared / "one/below/a file"
        assert seen.stat().st_size == 4
        written.write_text("longer")
        subprocess.run(refresh_command(Runs(root=shared)["one"]), check=True)
        assert seen.stat().st_size == 6
