"""How far training scales: images a second from one GPU to a thousand, and what bounds them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Final

from cluster.planner.assumptions import assume
from cluster.planner.communication import Ring, exposed_seconds
from cluster.planner.hardware import Hardware
from cluster.planner.layers import networks
from cluster.planner.recipe_workload import PAYLOAD
from cluster.planner.workload import Phase, Workload

COUNTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""GPUs."""
BATCH: Final = 64
"""Images a GPU and step, whatever their number, as TensorFlow's and Horovod's benchmarks have it."""
LEAST_GAIN: Final = 1.5
"""By how much a doubling of the GPUs must raise the images a second to count as scaling."""
ANY_BANDWIDTH: Final = 1e18
"""Bytes a second that no gradient notices."""
LATENCY: Final = "latency"
BANDWIDTH: Final = "bandwidth"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """Training on so many GPUs."""

    gpus: int
    images_s: float
    efficiency: float
    """Of so many times the rate of one."""
    waited_s: float
    """Of a step, after its computation."""
    bandwidth_s: float
    """What of it would be left without latency."""
    latency_s: float
    """What of it would be left with links of any bandwidth."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Links:
    """How gradients travel."""

    gradient_bytes: int
    """Of each weight."""
    efa: bool = False
    hierarchical: bool = False
    """Whether each node adds up its own first."""


def sweep(network: str, hardware: Hardware, links: Links, counts: Sequence[int] = COUNTS) -> tuple[Point, ...]:
    """Return what so many GPUs make of a network, each with the same batch, gradients travelling as they are computed.

    Horovod's own buffer and cycle; nodes of one kind in a placement group; images are there when they are wanted.
    """
    size = links.gradient_bytes * networks()[network].weights
    workload = Workload(
        network=network,
        precision="float16" if links.gradient_bytes == 2 else "float32",
        gradient_bytes=size,
        training_images=1,
        evaluated_images=0,
        phases=(Phase(epochs=1, size=networks()[network].image_size, global_batch=BATCH),),
        jpeg=False,
        program=dataclasses.replace(PAYLOAD, overlaps=True),
    )
    assumed = assume(workload, hardware, efa=links.efa, placement_group=True)
    compute_s = BATCH / assumed.images_s.value
    points = []
    for count in counts:
        ring = Ring(
            nodes=max(1, count // hardware.gpus),
            ranks_per_node=min(count, hardware.gpus),
            between_bytes_s=assumed.between_bytes_s.value,
            between_hop_s=assumed.between_hop_s.value,
            within_bytes_s=assumed.within_bytes_s.value,
            within_hop_s=assumed.within_hop_s.value,
        )
        instant = dataclasses.replace(ring, between_hop_s=0.0, within_hop_s=0.0)
        broad = dataclasses.replace(ring, between_bytes_s=ANY_BANDWIDTH, within_bytes_s=ANY_BANDWIDTH)
        waited_s, bandwidth_s, latency_s = (
            _waited_seconds(workload, compute_s, each, hierarchical=links.hierarchical) if count > 1 else 0.0
            for each in (ring, instant, broad)
        )
        images_s = count * BATCH / (compute_s + waited_s)
        points.append(
            Point(
                gpus=count,
                images_s=images_s,
                efficiency=images_s / count / assumed.images_s.value,
                waited_s=waited_s,
                bandwidth_s=bandwidth_s,
                latency_s=latency_s,
            )
        )
    return tuple(points)


def _waited_seconds(workload: Workload, compute_s: float, ring: Ring, *, hierarchical: bool) -> float:
    return exposed_seconds(
        networks()[workload.network].ready,
        compute_s,
        workload.gradient_bytes,
        ring,
        fusion_bytes=PAYLOAD.fusion_bytes,
        cycle_s=PAYLOAD.cycle_s,
        hierarchical=hierarchical,
    )


def stops_at(points: Sequence[Point]) -> tuple[int, str] | None:
    """Return after how many GPUs doubling them gains less than LEAST_GAIN, and what bounds it; None: never."""
    for before, after in itertools.pairwise(points):
        if after.images_s < LEAST_GAIN * before.images_s:
            return before.gpus, LATENCY if after.latency_s > after.bandwidth_s else BANDWIDTH
    return None
