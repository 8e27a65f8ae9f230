"""Rules for the workers' runtime: all workers of a run share one environment, and TensorFlow must have a build for it.

TensorFlow has builds for x86_64, with and without GPUs, and for aarch64 without GPUs. `purchasing` checks that all
worker types have the same processor and GPUs. The master does not compute, so its type and image are not restricted. It
has a separate environment, only for the launcher (`agent/environment`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stacks import images
from stacks.config import ClusterConfig
from stacks.cross_key_checks.problem import Problem
from stacks.gpus import CAPABILITIES, FIRST_SUPPORTED
from stacks.instance_types import find

X86_64: Final = "x86_64"
ARM64: Final = "arm64"
"""EC2's names."""


def check(config: ClusterConfig) -> Iterator[Problem]:
    """Yield all problems with the runtime."""
    for name in config.worker_types:
        yield from _build(config, name)


def cautions(config: ClusterConfig) -> Iterator[Problem]:
    """Yield a caution for each worker type with GPUs or arm64 processors.

    The runtime is hardly tested on them, and recipes cannot use GPUs that are older than Turing.
    """
    for name in config.worker_types:
        kind = find(name)
        if kind and kind.gpus and CAPABILITIES.get(kind.gpu_name, FIRST_SUPPORTED) < FIRST_SUPPORTED:
            yield Problem(
                key=_key(config, name),
                value=name,
                rule=f"{kind.gpu_name} is older than Turing, which the runtime's cuDNN 9.28 requires, so `fab train` "
                "rejects recipes on this type",
                remedy="use g4dn, g5, g6, g6e, p4d or p5, or run a program that installs its own framework",
            )
        elif kind and kind.gpus:
            gpus = f"the {kind.gpu_name} GPU" if kind.gpus == 1 else f"the {kind.gpus} {kind.gpu_name} GPUs"
            yield Problem(
                key=_key(config, name),
                value=name,
                rule=f"the runtime for {gpus} (TensorFlow for GPUs, Horovod with NCCL) was tested only on a single "
                "H200, never on several GPUs or on AWS",
                remedy="try a short run on two nodes before a long run",
            )
        elif _processor(config, name) == ARM64:
            yield Problem(
                key=_key(config, name),
                value=name,
                rule="the packages for arm64 processors are locked, but the runtime was never built or run with them",
                remedy="try a short run on two nodes before a long run, or use a type with x86_64 processors",
            )


def _build(config: ClusterConfig, name: str) -> Iterator[Problem]:
    """Check that TensorFlow has a build for the processors of the worker type `name`, and for its GPUs."""
    kind, processor = find(name), _processor(config, name)
    if processor not in (X86_64, ARM64, ""):
        yield _without_build(config, name, f"{processor} processors")
    elif kind and kind.gpus and processor == ARM64:
        yield _without_build(config, name, "GPUs with arm64 processors")


def _without_build(config: ClusterConfig, name: str, hardware: str) -> Problem:
    return Problem(
        key=_key(config, name),
        value=name,
        rule=f"{name} has {hardware}, and TensorFlow has no build for them",
        remedy="use a type with x86_64 processors, such as c5.2xlarge; with GPUs, use g4dn, g5, g6, g6e, p4d or p5",
    )


def _processor(config: ClusterConfig, name: str) -> str:
    """Return EC2's name of a worker type's architecture; x86_64 if the type supports it and others.

    For a type that is not in the table, it is the architecture of the workers' image, or "" if this is unknown too.
    """
    kind = find(name)
    if kind is None:
        return images.architecture(config.worker_image_parameter)
    return X86_64 if X86_64 in kind.architectures else kind.architectures[0]


def _key(config: ClusterConfig, name: str) -> str:
    return "worker_instance_type" if name == config.worker_instance_type else "worker_alternatives"
