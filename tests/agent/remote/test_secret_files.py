"""Secrets on a node: readable only by this user, removed with the run, and never shown."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import sys
from pathlib import Path

import pytest

from agent.remote import secret_files
from agent.runs.node_claims import Runs
from agent.runs.stored_state import State
from tests.factories import make_spec

SECRET = "swordfish"
SPEC = make_spec(secrets=("TOKEN",))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return secret_files.master_directory(tmp_path)


def test_secrets_are_readable_only_by_owner_until_dropped(directory: Path) -> None:
    secret_files.write(directory, "one", json.dumps({"TOKEN": "ü $(id) '\n", "OTHER": "x"}))
    assert secret_files.read(directory, "one", ("TOKEN",)) == {"TOKEN": "ü $(id) '\n"}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()] == [0o600]
    secret_files.remove(directory, "one")
    secret_files.remove(directory, "one")
    assert secret_files.read(directory, "one", ()) == {}
    with pytest.raises(secret_files.SecretsError, match="TOKEN are not on this node"):
        secret_files.read(directory, "one", ("TOKEN",))


def test_only_remains_of_a_crash_are_removed(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    runs = Runs(root=tmp_path / "runs")
    for run_id, state in (("ended", "failed"), ("queued", "queued")):
        runs[run_id].path.mkdir(parents=True)
        runs[run_id].write_state(dataclasses.replace(State.starting(SPEC), run_id=run_id, state=state))
    for run_id in ("ended", "queued", "sent just now", "sent long ago"):
        secret_files.write(directory, run_id, "{}")
    os.utime(directory / "sent long ago", (0, 0))
    os.utime(directory / "queued", (0, 0))
    assert sorted(secret_files.remove_stale(directory, runs)) == ["ended", "sent long ago"]
    assert sorted(path.name for path in directory.iterdir()) == ["queued", "sent just now"]
    assert secret_files.remove_stale(directory / "missing", runs) == []


def test_hosts_get_secrets_on_stdin_and_not_on_command_lines(directory: Path, tmp_path: Path) -> None:
    secret_files.write(directory, SPEC.run_id, json.dumps({"TOKEN": SECRET}))
    commands: list[list[str]] = []

    def command_for(host: object, argv: object) -> list[str]:
        copy = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())"
        commands.append([sys.executable, "-c", copy, str(tmp_path / getattr(host, "name", ""))])
        return commands[-1]

    assert secret_files.distribute(directory, SPEC, command_for) == {}
    assert SECRET not in str(commands)
    for host in SPEC.hosts:
        assert json.loads((tmp_path / host.name).read_text()) == {"TOKEN": SECRET}


def test_host_that_rejects_secrets_is_reported_without_values(directory: Path) -> None:
    secret_files.write(directory, SPEC.run_id, json.dumps({"TOKEN": SECRET}))
    failing = [sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit('disk full')"]
    failures = secret_files.distribute(directory, SPEC, lambda host, argv: failing)
    assert set(failures) == {"deeplearning-worker1", "deeplearning-worker2"}
    assert "disk full" in failures["deeplearning-worker1"]
    assert SECRET not in str(failures)


def test_missing_secrets_on_master_are_reported(directory: Path) -> None:
    failures = secret_files.distribute(directory, SPEC, lambda host, argv: ["true"])
    assert "pass them again with --secret" in failures["this master"]


def test_command_line_stores_and_drops_secrets(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.stdin", (tmp_path / "input").open("w+"))
    sys.stdin.write(json.dumps({"TOKEN": SECRET}))
    sys.stdin.seek(0)
    assert secret_files.main(["keep", "one", "two"]) == 0
    for run_id in ("one", "two"):
        assert secret_files.read(directory, run_id, ("TOKEN",)) == {"TOKEN": SECRET}
    sys.stdin.seek(0)
    assert secret_files.main(["take", "one"]) == 0
    assert secret_files.read(secret_files.node_directory(tmp_path), "one", ("TOKEN",)) == {"TOKEN": SECRET}
    assert secret_files.main(["drop", "one", "two"]) == 0
    assert [*directory.iterdir(), *secret_files.node_directory(tmp_path).iterdir()] == []
    assert capsys.readouterr() == ("", "")
    assert secret_files.main(["tell", "one"]) == 2


def test_command_line_reports_directory_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.stdin", (tmp_path / "input").open("w+"))
    (tmp_path / ".cache").touch()
    assert secret_files.main(["keep", "one"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{tmp_path}/.cache/") and line.endswith(": Not a directory")
