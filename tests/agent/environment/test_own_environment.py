"""Facts about the environment of a program's own: made from its lock alone, once for all nodes."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from agent.environment.horovod_build import parse_settings
from agent.environment.horovod_build_settings import Settings
from agent.environment.own_environment import OwnEnvironment, OwnEnvironmentBuilder, locked_lines, pins
from agent.environment.toolchain import this_platform
from agent.environment.virtual_environment import RuntimeSetupError

LOCK = """\
# made by uv
--index-url https://index.example/simple
numpy==1.26.4 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
torch==2.13.0+cpu ; sys_platform == 'linux' \\
    --hash=sha256:cc
"""


def write_wheel(directory: Path, version: str = "1.2") -> str:
    """Write a wheel of the package toy; return its line of a lock file."""
    wheel = directory / f"toy-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("toy.py", f"VERSION = '{version}'\n")
        archive.writestr(f"toy-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: toy\nVersion: {version}\n")
        archive.writestr(
            f"toy-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"toy-{version}.dist-info/RECORD", "")
    return f"toy=={version} \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def environment(tmp_path: Path, lock: str, **changes: Any) -> OwnEnvironment:
    made = OwnEnvironment(
        root=tmp_path / "environments",
        lock=lock,
        program=tmp_path,
        settings=None,
        here=this_platform(),
        wheelhouse=tmp_path / "wheelhouse",
    )
    return dataclasses.replace(made, **changes)


def ensure(made: OwnEnvironment, said: list[str] | None = None) -> Path:
    builder = OwnEnvironmentBuilder(
        environment=made,
        build_options=(),
        cache=made.root,
        environ=os.environ,
        report=(said if said is not None else []).append,
    )
    return builder.ensure()


def test_a_locks_packages_are_pinned_without_hashes_markers_and_options() -> None:
    assert pins(LOCK) == ["numpy==1.26.4", "torch==2.13.0+cpu"]
    assert len(locked_lines(LOCK)) == 6


def test_another_lock_framework_or_python_is_another_environment_and_a_comment_is_not(tmp_path: Path) -> None:
    here = this_platform()
    made = environment(tmp_path, LOCK)
    others = [
        environment(tmp_path, LOCK.replace("1.26.4", "1.26.3")),
        environment(tmp_path, LOCK.replace("index.example", "other.example")),
        environment(tmp_path, LOCK, settings=Settings()),
        environment(tmp_path, LOCK, settings=Settings(frameworks=("torch",))),
        environment(tmp_path, LOCK, settings=Settings(frameworks=("tensorflow", "torch"))),
        environment(tmp_path, LOCK, here=dataclasses.replace(here, python=(3, 13))),
    ]
    assert len({each.fingerprint for each in (made, *others)}) == len(others) + 1
    assert environment(tmp_path, f"# later\n\n{LOCK}").fingerprint == made.fingerprint


def test_one_node_brings_the_packages_and_the_next_installs_from_there(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    lock = "--no-index\n--find-links wheels\n" + write_wheel(tmp_path / "wheels")
    said: list[str] = []
    first = ensure(environment(tmp_path, lock), said)
    (tmp_path / "wheels" / "toy-1.2-py3-none-any.whl").unlink()
    second = ensure(environment(tmp_path, lock, root=tmp_path / "second"))
    for python in (first, second):
        done = subprocess.run(
            [python, "-c", "import toy; print(toy.VERSION)"], capture_output=True, text=True, check=True
        )
        assert done.stdout == "1.2\n"
    assert any(line.startswith("bringing 1 packages to ") for line in said)
    assert ensure(environment(tmp_path, lock)) == first


def test_it_has_nothing_of_the_runtime(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    python = ensure(environment(tmp_path, "--no-index\n--find-links wheels\n" + write_wheel(tmp_path / "wheels")))
    done = subprocess.run([python, "-c", "import pytest"], capture_output=True, text=True, check=False)
    assert "No module named 'pytest'" in done.stderr
    assert Path(sys.prefix) not in python.parents


def test_a_package_that_is_not_the_locked_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    lock = "--no-index\n--find-links wheels\n" + write_wheel(tmp_path / "wheels")
    write_wheel(tmp_path / "wheels" / "..", "1.2")
    with zipfile.ZipFile(tmp_path / "wheels" / "toy-1.2-py3-none-any.whl", "a") as archive:
        archive.writestr("more.py", "")
    made = environment(tmp_path, lock)
    with pytest.raises(RuntimeSetupError, match="Bringing the packages of the program's environment failed"):
        ensure(made)
    assert not (made.directory / ".complete").exists()


def test_horovods_settings_are_read_as_its_build_reads_them() -> None:
    assert parse_settings(("--frameworks", "tensorflow,torch")).frameworks == ("tensorflow", "torch")
    assert parse_settings(("--operations", "gpu", "--cc", "80")).compute_capabilities == (80,)
    with pytest.raises(ValueError, match="frameworks = 'mxnet': must be of tensorflow, torch"):
        parse_settings(("--frameworks", "mxnet"))
