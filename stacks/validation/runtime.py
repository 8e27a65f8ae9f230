"""Rules of the workers' runtime: one environment for all workers of a run, with builds of TensorFlow that exist.

TensorFlow has builds for x86_64, with and without GPUs, and for aarch64 without. That all types of workers have the
same processors and GPUs is a rule of `purchasing`. The master computes nothing, so its type and its image are free: it
has an environment of its own, for the launcher alone (`agent/environment`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stacks import images
from stacks.config import ClusterConfig
from stacks.gpus import CAPABILITIES, FIRST_SUPPORTED
from stacks.instance_types import find
from stacks.validation.problem import Problem

X86_64: Final = "x86_64"
ARM64: Final = "arm64"
"""As EC2 names them."""


def check(config: ClusterConfig) -> Iterator[Problem]:
    """Yield every rule of the runtime that the configuration breaks."""
    for name in config.worker_types:
        yield from _build(config, name)


def cautions(config: ClusterConfig) -> Iterator[Problem]:
    """Yield a caution for each type of workers whose runtime was not run, or that recipes cannot run on."""
    for name in config.worker_types:
        kind = find(name)
        if kind and kind.gpus and CAPABILITIES.get(kind.gpu_name, FIRST_SUPPORTED) < FIRST_SUPPORTED:
            yield Problem(
                key=_key(config, name),
                value=name,
                rule=f"the runtime's cuDNN 9.28 has dropped GPUs older than Turing, and so {kind.gpu_name}: "
                "`fab train` refuses recipes on it",
                remedy="take g4dn, g5, g6, g6e, p4d or p5, or run a program with a framework of its own",
            )
        elif kind and kind.gpus:
            gpus = f"the {kind.gpu_name} GPU" if kind.gpus == 1 else f"the {kind.gpus} {kind.gpu_name} GPUs"
            yield Problem(
                key=_key(config, name),
                value=name,
                rule=f"the runtime for {gpus} (TensorFlow for GPUs, Horovod with NCCL) ran on a single H200, and "
                "never on several GPUs or on AWS",
                remedy="try a short run on two nodes before a long one",
            )
        elif _processor(config, name) == ARM64:
            yield Problem(
                key=_key(config, name),
                value=name,
                rule="the runtime for arm64 processors was resolved from packages that exist, and never built or run",
                remedy="try a short run on two nodes before a long one, or take a type with x86_64 processors",
            )


def _build(config: ClusterConfig, name: str) -> Iterator[Problem]:
    """Check that TensorFlow has a build for a type of workers."""
    kind, processor = find(name), _processor(config, name)
    if processor not in (X86_64, ARM64, ""):
        yield _without_build(config, name, f"has {processor} processors, for which TensorFlow has no build")
    elif kind and kind.gpus and processor == ARM64:
        yield _without_build(config, name, "has GPUs beside arm64 processors, for which TensorFlow has no build")


def _without_build(config: ClusterConfig, name: str, why: str) -> Problem:
    return Problem(
        key=_key(config, name),
        value=name,
        rule=f"{name} {why}",
        remedy="take a type with x86_64 processors, such as c5.2xlarge, or with GPUs g4dn, g5, g6, g6e, p4d or p5",
    )


def _processor(config: ClusterConfig, name: str) -> str:
    """Return the architecture of a type as EC2 names it; for an unknown type that of its image, or empty."""
    kind = find(name)
    if kind is None:
        return images.architecture(config.worker_image_parameter)
    return X86_64 if X86_64 in kind.architectures else kind.architectures[0]


def _key(config: ClusterConfig, name: str) -> str:
    return "worker_instance_type" if name == config.worker_instance_type else "worker_alternatives"
