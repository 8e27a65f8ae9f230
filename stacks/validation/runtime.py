"""Rules of the nodes' runtime: one Python environment for master and workers, with an existing TensorFlow build.

The runtime is made from `agent/environment/requirements.txt`, whose TensorFlow is the package tensorflow-cpu: it has
wheels for x86_64 alone, and computes on no GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stacks import images
from stacks.config import MASTER, WORKER, ClusterConfig
from stacks.instance_types import find
from stacks.validation.problem import Problem

X86_64: Final = "x86_64"
_ROLES: Final = (WORKER, MASTER)


def check(config: ClusterConfig) -> Iterator[Problem]:
    """Yield every rule of the runtime that the configuration breaks."""
    yield from _processors(config)
    yield from _pythons(config)


def cautions(config: ClusterConfig) -> Iterator[Problem]:
    """Yield a caution for each type of workers whose GPUs the runtime does not use."""
    for name in config.worker_types:
        kind = find(name)
        if kind and kind.gpus:
            gpus = f"the {kind.gpu_name} GPU" if kind.gpus == 1 else f"the {kind.gpus} {kind.gpu_name} GPUs"
            yield Problem(
                key="worker_instance_type" if name == config.worker_instance_type else "worker_alternatives",
                value=name,
                rule=f"{gpus} would lie idle: the nodes' TensorFlow is the build for CPUs, and `fab train` refuses a "
                "node with GPUs that TensorFlow does not see",
                remedy="take a type without GPUs, such as c5.2xlarge; training on GPUs is not wired up yet",
            )


def _processors(config: ClusterConfig) -> Iterator[Problem]:
    """Check that master and workers have processors for which there is a TensorFlow, and so the same ones."""
    found = {role: _processor(config, role) for role in _ROLES}
    others = [role for role, processor in found.items() if processor not in ("", X86_64)]
    if not others:
        return
    first = others[0]
    facts = [f"{_type_key(role)} = {_type(config, role)} has {found[role] or 'unknown'} processors" for role in _ROLES]
    yield Problem(
        key=_type_key(first),
        value=_type(config, first),
        rule=f"{', '.join(facts)}; master and workers share one runtime, and its TensorFlow (tensorflow-cpu) has no "
        f"build for {found[first]}: no run could be prepared",
        remedy="take types with x86_64 processors for both, such as worker_instance_type = c5.2xlarge and "
        "master_instance_type = t3.medium",
    )


def _processor(config: ClusterConfig, role: str) -> str:
    """Return the architecture of a role's nodes as EC2 names it; for an unknown type that of its image, or empty."""
    kind = find(_type(config, role))
    if kind is None:
        return images.architecture(getattr(config, f"{role}_image_parameter"))
    return X86_64 if X86_64 in kind.architectures else kind.architectures[0]


def _pythons(config: ClusterConfig) -> Iterator[Problem]:
    """Check that the boot finds or installs the same Python on both images, judging by their names."""
    parameters = {role: _image_parameter(config, role) for role in _ROLES}
    found = {role: images.python(parameter) for role, parameter in parameters.items()}
    if not all(found.values()) or found[MASTER] == found[WORKER]:
        return
    facts = [f"{role}_image_parameter = {parameters[role]} brings Python {found[role]}" for role in _ROLES]
    yield Problem(
        key="master_image_parameter",
        value=config.master_image_parameter,
        rule=f"{', '.join(facts)}; master and workers share one runtime: no run could be prepared",
        remedy="name images of one distribution and release for both",
    )


def _type_key(role: str) -> str:
    return f"{role}_instance_type"


def _type(config: ClusterConfig, role: str) -> str:
    name: str = getattr(config, _type_key(role))
    return name


def _image_parameter(config: ClusterConfig, role: str) -> str:
    """Return the SSM parameter of a role's image; empty for an image by id, which has no name to judge by."""
    if getattr(config, f"{role}_image_id"):
        return ""
    return images.choose(getattr(config, f"{role}_image_parameter"), _type(config, role))
