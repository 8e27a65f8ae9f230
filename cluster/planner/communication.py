"""Links within and between nodes, and the time of an allreduce over them."""

from __future__ import annotations

import dataclasses
from typing import Final

from cluster.planner.figure import CITED, ESTIMATED, MEASURED, Figure, within
from cluster.planner.hardware import Hardware
from stacks.gpus import FLOW_GBIT_S, SPEEDS

EC2_NETWORK: Final = "EC2 User Guide, Amazon EC2 instance network bandwidth"
GROUPED_FLOW_GBIT_S: Final = 10.0
"""Maximum of one TCP flow within a cluster placement group (same source). Outside of it: `FLOW_GBIT_S`."""
FAST_FLOW_GBIT_S: Final = 16.0
"""NCCL's speed over TCP on faster networks (1.1 to 2 GB/s for tens of MB: NVIDIA/nccl, issues 209 and 450)."""
GLOO_GBIT_S: Final = 6.0
"""Maximum speed of Gloo's summation in memory, whatever the network: 102 MB in 136 ms on one host, November 2026."""
EFA_PART: Final = 0.75
"""Fraction of EFA's nominal bandwidth that an allreduce uses; estimated."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Link:
    """A link between neighbors in a ring of ranks."""

    bytes_s: Figure
    hop_s: Figure
    """Latency: the time of even the shortest message to the next rank."""


def between_nodes(hardware: Hardware, *, efa: bool, placement_group: bool) -> Link:
    """Return the link between nodes of a type: EFA with `efa`, if the type supports it, otherwise a TCP connection.

    The speed of TCP depends on `placement_group`. EFA implies a placement group.
    """
    nominal = hardware.network_gbit_s
    if efa and hardware.efa:
        return Link(
            bytes_s=within(nominal * EFA_PART / 8e-9, 0.5, 1 / EFA_PART, ESTIMATED, "three quarters of EFA's"),
            hop_s=within(20e-6, 0.5, 2, ESTIMATED, "EFA's latency, as AWS words it: lower than TCP's"),
        )
    flow = GROUPED_FLOW_GBIT_S if placement_group else FLOW_GBIT_S
    carried = min(nominal, flow) if hardware.gpus else min(nominal, flow, GLOO_GBIT_S)
    low = min(carried, nominal / 4) if hardware.network_peak else 0.85 * carried
    high = max(carried, min(nominal, FAST_FLOW_GBIT_S))
    words = "its network"
    if carried < nominal:
        words = f"one TCP flow, {'in' if placement_group else 'outside'} a placement group"
    return Link(
        bytes_s=Figure(
            value=carried / 8e-9, low=low / 8e-9, high=high / 8e-9, evidence=CITED, source=f"{words}: {EC2_NETWORK}"
        ),
        hop_s=within(50e-6, 0.5, 4, ESTIMATED, "half a round trip of TCP between instances of one zone"),
    )


def within_node(hardware: Hardware) -> Link:
    """Return the link between the ranks of one node: NVLink or PCI Express between GPUs, or else Gloo."""
    speed = SPEEDS.get(hardware.gpu)
    if hardware.nvlink and speed and speed.nvlink_gb_s:
        bandwidth = within(speed.nvlink_gb_s * 1e9 * 0.8, 0.5, 1.25, ESTIMATED, f"0.8 of NVLink: {speed.source}")
    elif hardware.gpus:
        bandwidth = within(10e9, 0.5, 1.5, ESTIMATED, "PCI Express 3.0 with 16 lanes")
    else:
        bandwidth = within(GLOO_GBIT_S / 8e-9, 0.5, 4, MEASURED, "102 MB in 136 ms over Gloo, on one host")
    return Link(bytes_s=bandwidth, hop_s=within(10e-6, 0.5, 5, ESTIMATED, "a message within a host"))


def ring_seconds(size: float, ranks: int, bytes_s: float, hop_s: float) -> float:
    """Return the time to allreduce `size` bytes in one ring of ranks, s. Its slowest link has `bytes_s` and `hop_s`.

    Each rank sends 2 (n - 1) / n times the size in 2 (n - 1) messages (Patarasuk and Yuan 2009).
    """
    return 2 * (ranks - 1) * (size / ranks / bytes_s + hop_s)


def grouped_seconds(
    size: float, ranks: int, bytes_s: float, hop_s: float, *, fusion_bytes: float, cycle_s: float
) -> float:
    """Return the time to allreduce `size` bytes of gradients as one group after the backward pass, s; 0 for one rank.

    The gradients are sent in buffers of `fusion_bytes`, one after the other. The time includes half of Horovod's cycle,
    the average wait.
    """
    if ranks == 1:
        return 0.0
    whole, rest = divmod(size, fusion_bytes)
    buffers = int(whole) * ring_seconds(fusion_bytes, ranks, bytes_s, hop_s)
    return cycle_s / 2 + buffers + (ring_seconds(rest, ranks, bytes_s, hop_s) if rest else 0.0)
