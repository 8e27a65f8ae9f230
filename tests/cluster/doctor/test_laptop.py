"""The laptop checks of `fab doctor`, each with its fix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.cli import REINSTALL
from cluster.deploy import cdk
from cluster.doctor import laptop
from cluster.doctor.finding import FAIL, OK, WARN, Finding
from cluster.ssh import user_settings

PROJECT = Path(__file__).resolve().parents[3]


def only(findings: Iterable[Finding]) -> Finding:
    (found,) = findings
    assert found.remedy or found.state == OK
    return found


def program(directory: Path, name: str, text: str) -> Path:
    """Write a shell script and return it."""
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_supported_pythons_match_the_wheel() -> None:
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["requires-python"]
    (oldest, newest) = laptop.PYTHONS
    assert declared == ">={}.{},<{}.{}".format(*oldest, newest[0], newest[1] + 1)


@pytest.mark.parametrize(("version", "state"), [((3, 10), FAIL), ((3, 11), OK), ((3, 13), OK), ((3, 14), WARN)])
def test_untested_python_is_reported(monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], state: str) -> None:
    monkeypatch.setattr(sys, "version_info", (*version, 0))
    assert only(laptop.python()).state == state


@pytest.mark.parametrize(
    ("script", "state", "says"),
    [
        ("echo v24.1.0", OK, "Node.js 24.1.0"),
        ("echo v16.20.2", FAIL, "Node.js 16.20.2 is too old"),
        ("echo 'cannot execute' >&2; exit 126", FAIL, "does not start"),
        ("exit 1", FAIL, "does not start"),
    ],
)
def test_node_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, state: str, says: str) -> None:
    node = program(tmp_path, "node", script)
    monkeypatch.setattr(cdk, "find_node", lambda: node)
    monkeypatch.setattr(cdk, "find_cli", lambda _: tmp_path / "cdk")
    found = only(laptop.programs())
    assert (found.state, says in found.what) == (state, True), found


def test_node_of_another_machine_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = tmp_path / "node"
    node.write_bytes(b"\x7fELF of another processor")
    node.chmod(0o755)
    monkeypatch.setattr(cdk, "find_node", lambda: node)
    monkeypatch.setattr(cdk, "find_cli", lambda _: tmp_path / "cdk")
    assert "Exec format error" in only(laptop.programs()).what


def test_missing_cdk_cli_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(cdk, "CODE", tmp_path)
    assert only(laptop.programs(tmp_path)).remedy == REINSTALL


@pytest.mark.parametrize(
    ("script", "state", "says"),
    [
        (
            '[ "$1" = -V ] && echo "OpenSSH_9.2p1 Debian, OpenSSL 3" >&2 || echo hostname a',
            OK,
            "OpenSSH_9.2p1 Debian, ",
        ),
        ("echo 'line 3: Bad configuration option: nonsense' >&2; exit 255", FAIL, "Bad configuration option: nonsense"),
    ],
)
def test_ssh_client_reads_the_users_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, state: str, says: str
) -> None:
    program(tmp_path, "ssh", script)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = only(laptop.ssh())
    assert (found.state, says in found.what) == (state, True), found


def test_missing_ssh_client_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = only(laptop.ssh())
    assert (found.state, "apt install openssh-client" in found.remedy) == (WARN, True)


def test_user_without_an_entry_in_passwd_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_settings, "openssh_knows_user", lambda: False)
    assert only(laptop.ssh()).state == WARN


def test_home_must_be_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(laptop.home(tmp_path)).state == OK
    assert "not a directory" in only(laptop.home(tmp_path / "none")).what
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".cache").write_text("a file")
    monkeypatch.setattr(os, "access", lambda place, _: Path(place).name != ".ssh")  # root may write to any directory
    found = only(laptop.home(tmp_path))
    assert (found.state, found.what) == (FAIL, f"not writable: {tmp_path}/.cache, {tmp_path}/.ssh")


@pytest.mark.parametrize(
    ("free", "files", "state", "says"),
    [
        (5_000_000_000, 100_000, OK, "5.0 GB free for home, project, temporary files"),
        (1_500_000_000, 100_000, WARN, "1.5 GB free"),
        (50_000_000, 100_000, FAIL, "50.0 MB free"),
        (5_000_000_000, 12, FAIL, "only for 12 more files"),
    ],
)
def test_free_space_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, files: int, state: str, says: str
) -> None:
    disk = SimpleNamespace(f_bavail=free // 4096 + 1, f_frsize=4096, f_files=200_000, f_favail=files)
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = only(laptop.room(tmp_path))
    assert (found.state, says in found.what) == (state, True), found


def test_missing_temporary_directory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(tempfile, "gettempdir", missing)
    assert "TMPDIR" in only(laptop.room()).remedy


def test_missing_region_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    assert "aws configure set region" in only(laptop.region()).remedy
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert only(laptop.region()) == Finding(check="region", state=OK, what="eu-west-1")


@pytest.mark.parametrize("cdk_json", [None, "{", '{"context": {"cluster": {"worker": 3}}}'])
def test_doctor_without_project_or_credentials_examines_the_laptop(tmp_path: Path, cdk_json: str | None) -> None:
    home = tmp_path / "home"
    home.mkdir()
    if cdk_json:
        (tmp_path / "cdk.json").write_text(cdk_json)
    code = (
        "import sys; sys.argv = ['deepcdk', 'doctor', '--json']; from cluster.cli import program\n"
        f"from pathlib import Path; from cluster.tasks import doctor; doctor.PROJECT = Path({str(tmp_path)!r})\n"
        "program.make_program().run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(PROJECT)},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")
    found = {each["check"]: each for each in json.loads(done.stdout)["findings"]}
    assert {"Python", "programs", "SSH client", "home", "disk", "region"} <= found.keys()
    assert (found["Python"]["state"], found["region"]["state"]) == ("ok", "fail")
    assert found["configuration"]["state"] == "fail"
    assert "deepcdk init" in found["configuration"]["remedy"]
