"""Facts about finding a CUDA toolkit, and about what it compiles for."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.environment.cuda import check_capabilities, find_toolkit
from agent.environment.toolchain import CudaToolkit, NotCoveredError

# As nvcc 12.9 prints it.
ANSWER = """\
nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Cuda compilation tools, release {}, V{}.86
"""


def put(root: Path, name: str, release: str) -> Path:
    """Put a toolkit of a release there, whose nvcc answers as NVIDIA's."""
    home = root / name
    (home / "bin").mkdir(parents=True)
    nvcc = home / "bin" / "nvcc"
    nvcc.write_text(f"#!/bin/sh\ncat <<'END'\n{ANSWER.format(release, release)}END\n")
    nvcc.chmod(0o755)
    return home


def test_the_newest_toolkit_of_tensorflows_cuda_is_taken(tmp_path: Path) -> None:
    for release in ("12.8", "12.9", "13.0", "13.2", "11.8"):
        put(tmp_path, f"cuda-{release}", release)
    (tmp_path / "cuda-12.10").mkdir()
    assert find_toolkit(None, tmp_path) == CudaToolkit(home=tmp_path / "cuda-12.9", version="12.9")


def test_two_digits_are_newer_than_one(tmp_path: Path) -> None:
    put(tmp_path, "cuda-12.9", "12.9")
    put(tmp_path, "cuda-12.10", "12.10")
    assert find_toolkit(None, tmp_path).version == "12.10"


def test_without_one_of_that_cuda_the_newest_is_taken_and_else_the_plain_name(tmp_path: Path) -> None:
    put(tmp_path, "cuda", "12.4")
    assert find_toolkit(None, tmp_path) == CudaToolkit(home=tmp_path / "cuda", version="12.4")
    put(tmp_path, "cuda-13.0", "13.0")
    put(tmp_path, "cuda-13.2", "13.2")
    assert find_toolkit(None, tmp_path).version == "13.2"


def test_a_given_toolkit_goes_before_all(tmp_path: Path) -> None:
    put(tmp_path, "cuda-12.9", "12.9")
    assert find_toolkit(put(tmp_path, "mine", "12.6"), tmp_path).version == "12.6"


def test_a_missing_or_a_broken_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotCoveredError, match=f"neither {tmp_path}/cuda-12.*/bin/nvcc nor .* Take an image that has"):
        find_toolkit(None, tmp_path)
    with pytest.raises(NotCoveredError, match=f"there is no {tmp_path}/none/bin/nvcc"):
        find_toolkit(tmp_path / "none", tmp_path)
    home = put(tmp_path, "cuda-12.9", "12.9")
    (home / "bin" / "nvcc").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(NotCoveredError, match="does not tell its release"):
        find_toolkit(None, tmp_path)


@pytest.mark.parametrize(
    ("version", "capabilities", "said"),
    [
        ("12.6", (90, 120), "which does not compile for GPUs of compute capability 12.0. Take an image with CUDA 12.8"),
        ("12.8", (103,), "compute capability 10.3. Take an image with CUDA 12.9"),
        ("13.0", (70, 90), "which no longer compiles for GPUs of compute capability 7.0. Take an image with CUDA 12"),
    ],
)
def test_a_toolkit_that_does_not_know_the_gpus_is_refused(
    version: str, capabilities: tuple[int, ...], said: str
) -> None:
    with pytest.raises(NotCoveredError, match=said):
        check_capabilities(CudaToolkit(home=Path("/cuda"), version=version), capabilities)


@pytest.mark.parametrize(("version", "capabilities"), [("12.9", (70, 75, 80, 90, 100, 103, 120)), ("13.0", (75, 120))])
def test_one_that_knows_them_is_taken(version: str, capabilities: tuple[int, ...]) -> None:
    check_capabilities(CudaToolkit(home=Path("/cuda"), version=version), capabilities)
