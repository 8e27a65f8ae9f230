"""EC2's GPUs: the compute capability, for which the runtime is built, and the speeds that a run must reach half of.

Standard library only. Capabilities: NVIDIA, "CUDA GPU Compute Capability" (developer.nvidia.com/cuda/gpus and its page
of legacy GPUs). Both by the names that `instance_types.csv` has.

A run on GPUs is refused below a floor, half of the published figure: that leaves room for the size of a matrix or of a
message, and none for a GPU that is throttled, a link that is down, or gradients that take another way. Tried was that
of products, on one H200: 706 to 745 TFLOP/s.
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
"""Compute capabilities times ten."""
FIRST_SUPPORTED: Final = 75
"""Turing. The runtime's cuDNN is 9.28, and 9.11 dropped Volta, Pascal and Maxwell (NVIDIA's support matrices of cuDNN
9.10 and 9.11, as compared in immich-app/immich#23110; of Volta also pytorch/pytorch#172352)."""
FRACTION: Final = 0.5
"""The part of a figure that must be reached."""
FLOW_GBIT_S: Final = 5.0
"""What one TCP flow between instances outside a cluster placement group carries at most, Gbit/s (EC2 User Guide,
"Amazon EC2 instance network bandwidth")."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuSpeed:
    """What a GPU does at best, as published."""

    matmul_tflops: float
    """Dense matrix products in FP16 on tensor cores, TFLOP/s: what it sustains where that is known, else its peak."""
    source: str
    nvlink_gb_s: float = 0.0
    """NVLink's bandwidth in one direction, GB/s; 0: the instance types with this GPU have no NVLink."""


SPEEDS: Final = {
    "V100": GpuSpeed(matmul_tflops=125, nvlink_gb_s=150, source="NVIDIA V100 data sheet (SXM2)"),
    "T4": GpuSpeed(
        matmul_tflops=24,
        source="24 sustained of a peak of 65, for its 70 W cap the clock (NVIDIA developer forum, topic 264462)",
    ),
    "T4g": GpuSpeed(matmul_tflops=24, source="as the T4, which it is on a board for Graviton, with the same 70 W"),
    "A100": GpuSpeed(matmul_tflops=312, nvlink_gb_s=300, source="NVIDIA A100 data sheet (SXM)"),
    "A10G": GpuSpeed(matmul_tflops=70, source="NVIDIA A10G data sheet"),
    "L4": GpuSpeed(
        matmul_tflops=45,
        source="estimated: a peak of 121 (NVIDIA L4 data sheet, 242 with sparsity), at 72 W capped as the T4 at 70",
    ),
    "L40S": GpuSpeed(matmul_tflops=362, source="NVIDIA L40S data sheet"),
    "H100": GpuSpeed(matmul_tflops=989, nvlink_gb_s=450, source="NVIDIA H100 data sheet (SXM)"),
    "H200": GpuSpeed(matmul_tflops=989, nvlink_gb_s=450, source="NVIDIA H200 data sheet (SXM)"),
    "B200": GpuSpeed(matmul_tflops=2250, nvlink_gb_s=900, source="NVIDIA DGX B200 data sheet"),
}
"""GPUs without an entry are measured, and not judged."""


def capability(instance_type: str) -> int | None:
    """Return the compute capability of a type's GPUs, times ten; None without NVIDIA GPUs, or where it is unknown."""
    kind = find(instance_type)
    return CAPABILITIES.get(kind.gpu_name) if kind is not None else None


def common_capability(instance_types: Iterable[str]) -> str:
    """Return the compute capability that all these types have, as `90`; empty where they differ or one is unknown."""
    found = {capability(name) for name in instance_types}
    return str(found.pop()) if len(found) == 1 and None not in found else ""


def least_matmul_tflops(kinds: Sequence[InstanceType]) -> float:
    """Return the floor of a matrix product on each GPU of these types, TFLOP/s; 0 where one has no figure."""
    figures = [SPEEDS[kind.gpu_name].matmul_tflops if kind.gpu_name in SPEEDS else 0.0 for kind in kinds]
    return FRACTION * min(figures, default=0.0)


def least_allreduce_gb_s(kinds: Sequence[InstanceType], ranks: Sequence[int], *, efa: bool) -> float:
    """Return the floor of an allreduce's bus bandwidth between nodes of these types, GB/s; 0 where one has no figure.

    One type for each node, and its number of ranks, each with a GPU. Bus bandwidth compares with the slowest link's,
    whatever the number of ranks (nccl-tests, doc/PERFORMANCE.md): NVLink within a node, the network between nodes. Of
    that EFA gives each GPU its part; over TCP the figure is what one flow carries, for how many flows NCCL opens is its
    own choice.
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
    """Return what connects the GPUs of one node, GB/s; 0 for PCI Express, of which nothing is published."""
    speed = SPEEDS.get(kind.gpu_name)
    return speed.nvlink_gb_s if speed and kind.nvlink_gpus == kind.gpus else 0.0


def network_gbit_s(words: str) -> float:
    """Parse EC2's words for a type's network, Gbit/s: `3200 Gigabit`, `4x 100 Gigabit`.

    0 for `Up to 25 Gigabit`, which is a peak: what such a type has at all times is not in EC2's words.
    """
    found = re.fullmatch(r"(?:([0-9]+)x )?([0-9]+(?:\.[0-9]+)?) Gigabit", words)
    return int(found[1] or 1) * float(found[2]) if found else 0.0
