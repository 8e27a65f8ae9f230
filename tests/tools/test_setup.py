"""Setting up a developer's machine."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import setup
from tools.setup import all_steps, command_file, node_environments, same_python, uv_program
from tools.setup_steps import Log

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "setup.sh"
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


def test_venv_of_chosen_python_is_kept() -> None:
    assert same_python(
        f"home = /usr/bin\nimplementation = CPython\nversion_info = {VERSION}.2\n", Path("/usr/bin/python3")
    )
    assert same_python(f"home = /usr/bin\nversion = {VERSION}.9\n", Path("/usr/bin/python3"))


@pytest.mark.parametrize(
    "config", ["", "home = /usr/bin\nversion = 3.10.1\n", f"home = /opt/bin\nversion = {VERSION}.1\n"]
)
def test_venv_of_another_python_is_replaced(config: str) -> None:
    assert not same_python(config, Path("/usr/bin/python3"))


def test_command_uses_its_own_node_from_any_directory(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "node").symlink_to("/bin/sh")
    (tmp_path / "cdk.js").write_text("echo locked $1\n")
    script = folder / "cdk"
    script.write_text(command_file("node", "../cdk.js"))
    script.chmod(0o755)
    (tmp_path / "link").symlink_to(script)
    for called in (script, tmp_path / "link"):
        finished = subprocess.run([called, "deploy it"], cwd="/", capture_output=True, text=True, check=True)
        assert finished.stdout == "locked deploy it\n"


def test_our_fab_replaces_fab_of_fabric_and_runs_in_folder_with_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv = tmp_path / "with space"
    venv.symlink_to(sys.prefix)
    fab = tmp_path / "fab"
    fab.write_text("Fabric's own")
    monkeypatch.setattr(setup, "PYTHON", venv / "bin" / "python")
    monkeypatch.setattr(setup, "FAB", fab)
    monkeypatch.setattr(setup, "DEEPCDK", tmp_path / "deepcdk")
    assert not setup.fab_is_ours()
    setup.install_fab(Log(step="fab", path=tmp_path / "log", environ={}))
    assert setup.fab_is_ours()
    for command, folder in ((fab, ROOT), (tmp_path / "deepcdk", ROOT / "docs"), (tmp_path / "deepcdk", tmp_path)):
        finished = subprocess.run([command, "sttaus"], cwd=folder, capture_output=True, text=True, check=False)
        assert "did you mean status?" in finished.stderr


def test_files_shared_by_all_clones_are_in_the_cache(tmp_path: Path) -> None:
    assert uv_program(tmp_path).is_relative_to(tmp_path)
    assert {each.root for each in node_environments(tmp_path)} == {tmp_path / "runtime"}


def test_keys_of_steps_are_computed_without_running_them(tmp_path: Path) -> None:
    first, lanes = all_steps({"XDG_CACHE_HOME": str(tmp_path)})
    steps = [first, *itertools.chain(*lanes)]
    assert [step.name for step in steps] == [
        "uv",
        "python packages",
        "fab",
        "cdk",
        "master's environment",
        "horovod",
        "custom op",
        "node runtime",
    ]
    assert len({step.key for step in steps}) == len(steps)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [('{"wheelhouse": "s3://wheels"}', "s3://wheels"), ('{"wheelhouse": "/mnt/efs/wheels"}', ""), ("{}", "")],
)
def test_setup_uses_wheelhouse_of_cdk_json_unless_it_is_on_nodes(cluster: str, expected: str) -> None:
    assert setup.configured_wheelhouse(f'{{"context": {{"cluster": {cluster}}}}}') == expected


def test_wheelhouse_is_passed_to_both_builds_of_horovod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def run(self: Log, command: list[str], cwd: Path) -> str:
        ran.append(" ".join(command))
        return f"{tmp_path}/horovod.whl"

    monkeypatch.setattr(Log, "run", run)
    monkeypatch.setattr("agent.environment.package_fixes.make_gloo_default", lambda venv: None)
    _, lanes = all_steps({"XDG_CACHE_HOME": str(tmp_path)}, "s3://wheels")
    for step in itertools.chain(*lanes):
        if step.name in ("horovod", "node runtime"):
            step.run(Log(step=step.name, path=tmp_path / "log", environ={}))
    builds = [line for line in ran if "horovod_build build" in line or "agent.environment.runtime" in line]
    assert len(builds) == 2
    assert all(line.endswith("--horovod-wheelhouse s3://wheels") for line in builds)


def machine(tmp_path: Path, **commands: str) -> dict[str, str]:
    """Return the environment of a machine with only sh, coreutils and these scripts."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("dirname", "sort", "date", "sh", "tee", "chmod", "rm", "env", "mkdir", "tail"):
        (folder / name).symlink_to(f"/usr/bin/{name}")
    for name, text in commands.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    return {"PATH": str(folder), "PYTHON": sys.executable}


def only(tmp_path: Path) -> Path:
    """Return a copy of the script that ignores the machine's own system directories."""
    copy = tmp_path / "clone" / "tools" / "setup.sh"
    copy.parent.mkdir(parents=True)
    copy.write_text(SCRIPT.read_text().replace("PATH=$PATH:/usr/sbin:/sbin", "").replace("/usr/sbin", str(tmp_path)))
    return copy


def test_missing_packages_are_only_listed_without_root_and_sudo(tmp_path: Path) -> None:
    environ = machine(tmp_path, id="echo 1000", sudo="exit 1", apt_get="echo called; exit 1", git="", make="")
    finished = subprocess.run(["sh", only(tmp_path)], env=environ, capture_output=True, text=True, check=False)
    assert finished.returncode == 1
    listed = next(line for line in finished.stderr.splitlines() if "apt-get install" in line).split()
    assert {"g++", "openssh-server", "nftables", "iproute2"} < set(listed)
    assert not {"git", "make"} & set(listed)
    assert finished.stdout == ""


def test_missing_packages_are_listed_without_apt(tmp_path: Path) -> None:
    finished = subprocess.run(
        ["sh", only(tmp_path)], env=machine(tmp_path, id="echo 0"), capture_output=True, text=True, check=False
    )
    assert finished.returncode == 1
    assert "apt-get was not found" in finished.stderr


def test_root_installs_only_missing_packages_after_update(tmp_path: Path) -> None:
    record = 'echo "apt-get $*" >> "$(dirname "$0")/../calls"; case "$*" in *install*) exit 100;; esac'
    environ = machine(tmp_path, id="echo 0", apt_get=record, git="", make="")
    finished = subprocess.run(["sh", only(tmp_path)], env=environ, capture_output=True, text=True, check=False)
    assert finished.returncode == 1
    assert "see " in finished.stderr
    update, install = (tmp_path / "calls").read_text().splitlines()
    assert update.startswith("apt-get update")
    assert "nftables" in install
    assert "git" not in install.split()
    # The policy against starting services is removed even though the installation failed.
    assert not (tmp_path / "policy-rc.d").exists()


def test_help_shows_each_command() -> None:
    finished = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    for name in ("setup", "demo", "test", "test-unit", "lint", "benchmarks", "lock", "clean"):
        assert f"make {name} " in finished.stdout
