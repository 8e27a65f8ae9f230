"""Find the CUDA toolkit that Horovod's kernels are compiled with, and check what it can compile for.

TensorFlow's own CUDA libraries are NVIDIA's Python packages of CUDA 12. The one with the compiler's name,
nvidia-cuda-nvcc-cu12, has ptxas and headers but no nvcc (seen in 12.9), so the compiler comes from the image: AWS's
Deep Learning Base images have /usr/local/cuda-12.8, -12.9, -13.0 and -13.2 (their release notes of 2026-09-18). A wheel
contains CUDA's runtime, so one of CUDA 13 loads beside TensorFlow's libraries of CUDA 12; its driver must know CUDA 13,
580 or later. Built with 13.0, and run on an H200 with driver 580.159.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from agent.environment.toolchain import CudaToolkit, NotCoveredError, version_pair

ROOT: Final = Path("/usr/local")
MAJOR: Final = 12
"""Of TensorFlow 2.21's CUDA libraries."""
FIRST_TOOLKITS: Final = {100: (12, 8), 103: (12, 9), 120: (12, 8)}
"""The first toolkit that compiles for a compute capability, where one of CUDA 12 may lack it (CUDA's release notes:
12.8 adds Blackwell's 10.0 and 12.0, 12.9 its 10.3)."""
ENDED_TOOLKITS: Final = {50: (13, 0), 52: (13, 0), 60: (13, 0), 61: (13, 0), 70: (13, 0)}
"""The first toolkit that no longer compiles for one (release notes of CUDA 13.0: Maxwell, Pascal and Volta removed)."""


def find_toolkit(given: Path | None, root: Path = ROOT) -> CudaToolkit:
    """Return the given toolkit, else the newest of CUDA 12 under `root`, else the newest there.

    Raises NotCoveredError where there is none.
    """
    if given is not None:
        return _toolkit(given)
    found = sorted((version, path) for path in root.glob("cuda-*") if (version := _named_version(path)) is not None)
    preferred = [path for version, path in found if version[0] == MAJOR] or [path for _, path in found]
    if preferred:
        return _toolkit(preferred[-1])
    if (root / "cuda" / "bin" / "nvcc").is_file():
        return _toolkit(root / "cuda")
    raise NotCoveredError(
        f"there is no CUDA compiler: neither {root}/cuda-{MAJOR}.*/bin/nvcc nor {root}/cuda/bin/nvcc exists",
        "Take an image that has the toolkit, such as AWS's Deep Learning Base image, or install it there.",
    )


def check_capabilities(toolkit: CudaToolkit, capabilities: Iterable[int]) -> None:
    """Raise NotCoveredError where a toolkit does not compile for one of these compute capabilities, times ten."""
    version = version_pair(toolkit.version)
    for capability in capabilities:
        first, end = FIRST_TOOLKITS.get(capability, (0, 0)), ENDED_TOOLKITS.get(capability, (99, 0))
        if version < first:
            raise NotCoveredError(
                f"{toolkit.home} is CUDA {toolkit.version}, which does not compile for GPUs of compute capability "
                f"{capability / 10}",
                f"Take an image with CUDA {first[0]}.{first[1]} or later.",
            )
        if version >= end:
            raise NotCoveredError(
                f"{toolkit.home} is CUDA {toolkit.version}, which no longer compiles for GPUs of compute capability "
                f"{capability / 10}",
                f"Take an image with CUDA {MAJOR}.",
            )


def _named_version(path: Path) -> tuple[int, int] | None:
    named = re.fullmatch(r"cuda-(\d+)\.(\d+)", path.name)
    return (int(named[1]), int(named[2])) if named and (path / "bin" / "nvcc").is_file() else None


def _toolkit(home: Path) -> CudaToolkit:
    nvcc = home / "bin" / "nvcc"
    try:
        finished = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        raise NotCoveredError(f"there is no {nvcc}", "Install the CUDA toolkit, or give --cuda-home.") from None
    found = re.search(r"release (\d+\.\d+)", finished.stdout)
    if finished.returncode != 0 or found is None:
        raise NotCoveredError(f"{nvcc} --version does not tell its release", "Repair or reinstall the CUDA toolkit.")
    return CudaToolkit(home=home, version=found[1])
