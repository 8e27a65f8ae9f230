"""What the runtime needs to know of EC2's GPUs before a node boots: their compute capability.

Standard library only. Figures: NVIDIA, "CUDA GPU Compute Capability" (developer.nvidia.com/cuda/gpus and its page of
legacy GPUs), by the names that `instance_types.csv` has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from stacks.instance_types import find

CAPABILITIES: Final = {
    "K80": 37,
    "M60": 52,
    "V100": 70,
    "T4": 75,
    "T4g": 75,
    "A100": 80,
    "A10G": 86,
    "L4": 89,
    "L40S": 89,
    "H100": 90,
    "H200": 90,
    "B200": 100,
    "B300": 103,
    "RTX PRO 4500": 120,
    "RTX PRO Server 6000": 120,
}
"""Compute capabilities times ten."""
FIRST_SUPPORTED: Final = 75
"""Turing. The runtime's cuDNN is 9.28, and 9.11 dropped Volta, Pascal and Maxwell (NVIDIA's support matrices of cuDNN
9.10 and 9.11, as compared in immich-app/immich#23110; of Volta also pytorch/pytorch#172352)."""


def capability(instance_type: str) -> int | None:
    """Return the compute capability of a type's GPUs, times ten; None without NVIDIA GPUs, or where it is unknown."""
    kind = find(instance_type)
    return CAPABILITIES.get(kind.gpu_name) if kind is not None else None


def common_capability(instance_types: Iterable[str]) -> str:
    """Return the compute capability that all these types have, as `90`; empty where they differ or one is unknown."""
    found = {capability(name) for name in instance_types}
    return str(found.pop()) if len(found) == 1 and None not in found else ""
