"""Settings of Horovod's build, with the fingerprint and environment that follow from them. Standard library only."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent.environment.horovod_source import DIGEST, VERSION
from agent.environment.toolchain import Toolchain
from agent.environment.virtual_environment import digest
from agent.hardware.machine import Platform
from agent.spec.frameworks import FRAMEWORKS, HOROVOD_SHA256, TENSORFLOW, TORCH

INCLUDE: Final = Path(__file__).parent / "include"
# A header that TensorFlow removed, relative to an include folder. Our copy is used only if TensorFlow lacks it.
XLA_BUILDER: Final = Path("tensorflow/compiler/xla/client/xla_builder.h")
LIBRARIES: Final = "$ORIGIN/../../../.."
"""Where Horovod's library, in lib/pythonX.Y/site-packages/horovod/tensorflow, finds Open MPI's library: lib."""
NCCL_LIBRARY: Final = "$ORIGIN/../../nvidia/nccl/lib"
"""Where Horovod's library finds the NCCL of NVIDIA's Python package."""
CONTROLLERS: Final = "gloo, mpi"
# Folders in TensorFlow's wheel. TensorFlow's public headers include other headers by paths relative to these folders.
EXTERNAL_INCLUDES: Final = ("external/highwayhash", "external/farmhash_archive/src")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What Horovod is built for: operations, CUDA and frameworks; and where a built wheel may be."""

    operations: str = "cpu"  # cpu: allreduce over Gloo; gpu: over NCCL
    cuda_home: Path | None = None  # the CUDA toolkit, with bin/nvcc; None: the result of `toolchain.find_toolkit`
    compute_capabilities: tuple[int, ...] = ()  # multiplied by ten: 80: A100, 90: H100 and H200; only for gpu
    frameworks: tuple[str, ...] = (TENSORFLOW,)  # tensorflow, torch, or both
    wheelhouse: str = ""  # address of a wheelhouse (`agent.environment.horovod_wheelhouse`); empty: none

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid value, or for operations on GPUs without a compute capability."""
        if self.operations not in ("cpu", "gpu"):
            raise ValueError(f"operations = {self.operations!r}: must be cpu or gpu")
        if self.operations == "gpu" and not self.compute_capabilities:
            raise ValueError("compute_capabilities is empty, but operations = gpu needs one, for example --cc 90")
        if not self.frameworks or set(self.frameworks) - set(FRAMEWORKS):
            raise ValueError(f"frameworks = {','.join(self.frameworks)!r}: must be {', '.join(FRAMEWORKS)} or both")

    @property
    def gpu(self) -> bool:
        """Return whether Horovod's allreduce runs on GPUs."""
        return self.operations == "gpu"

    @property
    def options(self) -> tuple[str, ...]:
        """Return these settings as command-line options of `agent.environment.horovod_build`."""
        options = ["--operations", self.operations, "--frameworks", ",".join(self.frameworks)]
        options += ["--cc", ",".join(map(str, self.compute_capabilities))] if self.compute_capabilities else []
        options += ["--cuda-home", str(self.cuda_home)] if self.cuda_home is not None else []
        options += ["--horovod-wheelhouse", self.wheelhouse] if self.wheelhouse else []
        return tuple(options)

    @property
    def identity(self) -> dict[str, str]:
        """Return, by name, the settings that make one wheel different from another.

        They are inputs of the fingerprint.
        """
        # Wheels for TensorFlow alone keep the fingerprint from before there were other frameworks.
        built = {} if self.frameworks == (TENSORFLOW,) else {"frameworks": ",".join(sorted(self.frameworks))}
        if not self.gpu:
            return {"operations": "cpu", **built}
        return {
            **built,
            "operations": "gpu",
            "cuda": str(self.cuda_home or "found"),
            "cc": ",".join(map(str, sorted(self.compute_capabilities))),
        }


def known_inputs(settings: Settings, here: Platform) -> dict[str, str]:
    """Return the inputs of the wheel's fingerprint that are known before TensorFlow is installed, by name."""
    return {
        "horovod": VERSION,
        "sdist": HOROVOD_SHA256,
        "patch": DIGEST,
        "header": hashlib.sha256((INCLUDE / XLA_BUILDER).read_bytes()).hexdigest(),
        "controllers": CONTROLLERS,
        **here.inputs,
        **settings.identity,
    }


def fingerprint(settings: Settings, toolchain: Toolchain) -> str:
    """Return the wheel's fingerprint, 16 hex digits of a digest of the settings and the versions of all tools."""
    inputs = known_inputs(settings, toolchain.platform)
    found = {"compiler": toolchain.compiler, "open mpi": toolchain.open_mpi}
    versions = {"tensorflow": toolchain.tensorflow, "torch": toolchain.torch}
    found |= {name: version for name, version in versions.items() if version}
    return digest(inputs | found | ({"nvcc": toolchain.cuda.version} if toolchain.cuda is not None else {}))


def environment(
    settings: Settings,
    toolchain: Toolchain,
    *,
    base: Mapping[str, str],
    jobs: int,
    lacks_header: bool,
    compiler: Path | None = None,
    nccl: Path | None = None,
) -> dict[str, str]:
    """Return the environment variables of the build: Horovod's settings, and `base` without variables that interfere.

    `jobs` is the number of concurrent compilers (1 to 1.5 GiB each). `lacks_header` means that TensorFlow does not
    contain XLA_BUILDER. `compiler` runs instead of the machine's c++. `nccl` is the folder of NCCL, for GPUs.
    """
    # A parent make passes MAKEFLAGS with a job server that is closed here.
    stray = ("HOROVOD_", "CPLUS_INCLUDE_PATH", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    kept = {name: value for name, value in base.items() if not name.startswith(stray)}
    headers = toolchain.tensorflow_include
    includes = [headers / name for name in EXTERNAL_INCLUDES] if headers is not None else []
    rpath = ":".join([LIBRARIES, *([NCCL_LIBRARY] if settings.gpu else [])])
    if lacks_header:
        includes.insert(0, INCLUDE)
    result = kept | {
        "PATH": f"{toolchain.mpicxx.parent}:{base.get('PATH', os.defpath)}",  # CMake looks for mpicxx there
        "LDFLAGS": " ".join(filter(None, [base.get("LDFLAGS", ""), f"-Wl,-rpath,{rpath}"])),
        **({"CPLUS_INCLUDE_PATH": ":".join(map(str, includes))} if includes else {}),
        **({"CXX": str(compiler)} if compiler is not None else {}),
        "MAKEFLAGS": f"-j{jobs}",
        "HOROVOD_CMAKE": str(toolchain.cmake),
        f"HOROVOD_WITH{'' if TENSORFLOW in settings.frameworks else 'OUT'}_TENSORFLOW": "1",
        f"HOROVOD_WITH{'' if TORCH in settings.frameworks else 'OUT'}_PYTORCH": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_WITH_MPI": "1",
    }
    if toolchain.cuda is not None:
        result |= {
            "HOROVOD_GPU_OPERATIONS": "NCCL",
            "HOROVOD_CUDA_HOME": str(toolchain.cuda.home),
            "CUDA_HOME": str(toolchain.cuda.home),  # otherwise PyTorch uses the folders of the nvcc in PATH
            "HOROVOD_NCCL_HOME": str(nccl),
            "HOROVOD_NCCL_LINK": "SHARED",
            "HOROVOD_BUILD_CUDA_CC_LIST": ",".join(map(str, sorted(settings.compute_capabilities))),
        }
    return result
