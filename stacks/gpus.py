"""EC2's GPUs: the compute capability that the runtime is built for, and the minimum speeds for a run.

Standard library only. Capabilities: NVIDIA, "CUDA GPU Compute Capability" (developer.nvidia.com/cuda/gpus and its page
of legacy GPUs). GPUs have the names in `instance_types.csv`.

A run on GPUs is rejected below half of the published speed. That margin covers the size of a matrix or a message, but
not a throttled GPU, a broken link, or gradients on the wrong network. The speed of matrix products was measured on one
H200: 706 to 745 TFLOP/s.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Final

from stacks.instance_types import InstanceType, find

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
"""Compute capabilities, multiplied by ten."""
FIRST_SUPPORTED: Final = 75
"""Turing. The runtime's cuDNN is 9.28, and 9.11 dropped Volta, Pascal and Maxwell (NVIDIA's support matrices of cuDNN
9.10 and 9.11, as compared in immich-app/immich#23110; for Volta also pytorch/pytorch#172352)."""
FRACTION: Final = 0.5
"""The share of a published speed that must be reached."""
FLOW_GBIT_S: Final = 5.0
"""Maximum rate of one TCP flow between instances outside a cluster placement group, Gbit/s (EC2 User Guide,
"Amazon EC2 instance network bandwidth")."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuSpeed:
    """The published maximum speeds of a GPU."""

    matmul_tflops: float
    """Dense FP16 matrix products on tensor cores, TFLOP/s: the sustained rate if it is known, else the peak."""
    source: str
    nvlink_gb_s: float = 0.0
    """NVLink's bandwidth in one direction, GB/s; 0: the instance types with this GPU have no NVLink."""


SPEEDS: Final = {
    "V100": GpuSpeed(matmul_tflops=125, nvlink_gb_s=150, source="NVIDIA V100 data sheet (SXM2)"),
    "T4": GpuSpeed(
        matmul_tflops=24,
        source="24 sustained, 65 peak: its 70 W limit the clock (NVIDIA developer forum, topic 264462)",
    ),
    "T4g": GpuSpeed(matmul_tflops=24, source="as the T4: the same chip with the same 70 W, on a board for Graviton"),
    "A100": GpuSpeed(matmul_tflops=312, nvlink_gb_s=300, source="NVIDIA A100 data sheet (SXM)"),
    "A10G": GpuSpeed(matmul_tflops=70, source="NVIDIA A10G data sheet"),
    "L4": GpuSpeed(
        matmul_tflops=45,
        source="estimated: 121 peak (NVIDIA L4 data sheet: 242 with sparsity), limited by 72 W as the T4 by 70 W",
    ),
    "L40S": GpuSpeed(matmul_tflops=362, source="NVIDIA L40S data sheet"),
    "H100": GpuSpeed(matmul_tflops=989, nvlink_gb_s=450, source="NVIDIA H100 data sheet (SXM)"),
    "H200": GpuSpeed(matmul_tflops=989, nvlink_gb_s=450, source="NVIDIA H200 data sheet (SXM)"),
    "B200": GpuSpeed(matmul_tflops=2250, nvlink_gb_s=900, source="NVIDIA DGX B200 data sheet"),
}
"""GPUs without an entry are measured, but have no minimum speed."""


def capability(instance_type: str) -> int | None:
    """Return the compute capability of a type's GPUs, multiplied by ten; None without NVIDIA GPUs, or if unknown."""
    kind = find(instance_type)
    return CAPABILITIES.get(kind.gpu_name) if kind is not None else None


def common_capability(instance_types: Iterable[str]) -> str:
    """Return the compute capability that all these types have, as `90`; "" if they differ or one is unknown."""
    found = {capability(name) for name in instance_types}
    return str(found.pop()) if len(found) == 1 and None not in found else ""


def least_matmul_tflops(kinds: Sequence[InstanceType]) -> float:
    """Return the speed that a matrix product must reach on each GPU of these types, TFLOP/s.

    It is FRACTION of the slowest GPU's speed; 0 if a GPU's speed is unknown.
    """
    figures = [SPEEDS[kind.gpu_name].matmul_tflops if kind.gpu_name in SPEEDS else 0.0 for kind in kinds]
    return FRACTION * min(figures, default=0.0)


def least_allreduce_gb_s(kinds: Sequence[InstanceType], ranks: Sequence[int], *, efa: bool) -> float:
    """Return the bus bandwidth that an allreduce between these nodes must reach, GB/s.

    It is FRACTION of the bandwidth of the slowest link: NVLink within a node, the network between nodes. Bus bandwidth
    can be compared with a link's bandwidth for any number of ranks (nccl-tests, doc/PERFORMANCE.md). With `efa`, each
    GPU gets its share of the network. Over TCP, the limit is the rate of one flow, because NCCL decides how many flows
    it opens. Returns 0 if the bandwidth of a link is unknown, or if there is only one rank.

    `kinds` and `ranks` have an item per node: its type, and its number of ranks with a GPU each.
    """
    placed = list(zip(kinds, ranks, strict=True))
    links = [_within_gb_s(kind) for kind, count in placed if count > 1]
    if len(placed) > 1:
        for kind, count in placed:
            network = network_gbit_s(kind.network)
            part = min(1.0, count / max(1, kind.gpus))
            links.append((network * part if efa else min(network, FLOW_GBIT_S)) / 8)
    return FRACTION * min(links, default=0.0)


def _within_gb_s(kind: InstanceType) -> float:
    """Return the bandwidth between GPUs within one node, GB/s; 0 if it is unknown, as for PCI Express."""
    speed = SPEEDS.get(kind.gpu_name)
    return speed.nvlink_gb_s if speed and kind.nvlink_gpus == kind.gpus else 0.0


def network_gbit_s(words: str) -> float:
    """Parse EC2's description of a type's network into Gbit/s: `3200 Gigabit`, `4x 100 Gigabit`.

    The result is 0 for any other text, such as `Up to 25 Gigabit`. That is a peak, and EC2 does not describe the
    baseline of such a type.
    """
    found = re.fullmatch(r"(?:([0-9]+)x )?([0-9]+(?:\.[0-9]+)?) Gigabit", words)
    return int(found[1] or 1) * float(found[2]) if found else 0.0
