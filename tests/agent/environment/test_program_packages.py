"""A program's own packages: an overlay on the runtime, the same on all nodes, and built once per content."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent.environment.install_step import RuntimeSetupError
from agent.environment.program_packages import Overlay
from tests.agent.environment.wheels import write_wheel

pytestmark = pytest.mark.usefixtures("installer")


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a runtime from wheels with the relevant names."""
    place = tmp_path_factory.mktemp("runtime")
    for name, version in (("tensorflow_cpu", "2.21.0"), ("horovod", "0.28.1"), ("numpy", "2.4.6"), ("toy", "1.0")):
        write_wheel(place / "wheels", name, version)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "env"], check=True)
    packages = next((place / "env" / "lib").glob("python3*/site-packages"))
    for wheel in (place / "wheels").iterdir():
        shutil.unpack_archive(wheel, packages, "zip")
    return place / "env" / "bin" / "python"


def said(python: Path, code: str) -> str:
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_layer_has_laptop_wheels_and_does_not_change_runtime(tmp_path: Path, runtime: Path) -> None:
    program, wheels = (tmp_path / "payloads" / name for name in ("fedcba9876543210/program", "0123456789abcdef/wheels"))
    program.mkdir(parents=True)
    lines = write_wheel(wheels, "newer", "3.0") + write_wheel(wheels, "toy", "1.2")
    lock = f"--find-links ../../0123456789abcdef/wheels\n--no-index\n--only-binary :all:\n{lines}"
    layer = Overlay(
        runtime=runtime, program=program, lock=lock, root=tmp_path / "layers", wheelhouse=tmp_path / "wheelhouse",
        log=tmp_path / "log",
    )  # fmt: skip
    code = "import newer, toy, importlib.metadata as m; print(newer.VERSION, toy.VERSION, m.version('tensorflow'))"
    assert said(layer.ensure(), code) == "3.0 1.2 2.21.0"
    assert said(runtime, "import toy; print(toy.VERSION)") == "1.0"
    missing = dataclasses.replace(layer, lock=lock.replace("newer==3.0", "newer==4.0"))
    with pytest.raises(RuntimeSetupError, match=r"(?s)newer==4\.0.*full log is install-NODE\.log"):
        missing.ensure()
    assert "newer==4.0" in (tmp_path / "log").read_text()
    # The second node has only the shared file system: no package index, and not the first node's overlay.
    wheels.rename(tmp_path / "gone")
    second = dataclasses.replace(layer, root=tmp_path / "second")
    assert said(second.ensure(), code) == "3.0 1.2 2.21.0"
    assert dataclasses.replace(second, report=pytest.fail).ensure() == second.python


def test_laptops_wheel_is_chosen_before_another_file_of_the_same_version(tmp_path: Path, runtime: Path) -> None:
    """A fork with the version of the release failed, because pip chose the release and rejected its hash."""
    program = tmp_path / "payloads" / "fedcba9876543210" / "program"
    program.mkdir(parents=True)
    line = write_wheel(tmp_path / "payloads" / "0123456789abcdef" / "wheels", "some_fork", "3.0")
    write_wheel(tmp_path / "index", "some_fork", "3.0", build="-1")
    line = line.replace("some_fork", "some-fork")
    lock = f"--find-links ../../0123456789abcdef/wheels\n--find-links {tmp_path}/index\n--no-index\n{line}"
    layer = Overlay(runtime=runtime, program=program, lock=lock, root=tmp_path / "layers")
    assert said(layer.ensure(), "import some_fork; print(some_fork.VERSION, some_fork.BUILD)") == "3.0"


def test_runtime_without_tensorflow_is_reported_with_fix(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    layer = Overlay(runtime=tmp_path / "env/bin/python", program=tmp_path, lock="", root=tmp_path / "layers")
    with pytest.raises(RuntimeSetupError, match=r"/env has no TensorFlow\. Remove .*/env; the next attempt makes it"):
        layer.ensure()
