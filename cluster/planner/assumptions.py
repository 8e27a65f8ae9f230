"""What the model takes for granted of one kind of node, each figure with its range and source."""

from __future__ import annotations

import dataclasses

from cluster.planner import communication, compute_rates
from cluster.planner.evidence import ESTIMATED, Figure
from cluster.planner.hardware import Hardware
from cluster.planner.workload import Workload

START_UP_S = Figure(
    value=240,
    low=60,
    high=600,
    evidence=ESTIMATED,
    source="boot, registration, preparation, pre-flight and the first steps; on the embedded cloud 6.5 s with nodes up",
)
"""From Enter to the first step where the nodes are still to be launched. Not measured on AWS."""
READY_START_UP_S = Figure(
    value=30,
    low=6,
    high=90,
    evidence=ESTIMATED,
    source="6.5 s measured on the embedded cloud; TensorFlow takes longer to load on GPUs",
)
"""The same where the nodes are up."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assumptions:
    """The figures for one workload on one kind of node."""

    images_s: Figure
    """Of one rank, at the network's published size."""
    evaluation_speed: Figure
    """Images evaluated in the time of one trained on."""
    decode_images_s: Figure
    """Images decoded a second by one vCPU."""
    between_bytes_s: Figure
    between_hop_s: Figure
    within_bytes_s: Figure
    within_hop_s: Figure
    start_up_s: Figure

    def figure(self, name: str) -> Figure:
        """Return the figure of that name."""
        found: Figure = getattr(self, name)
        return found

    def at(self, name: str, value: float) -> Assumptions:
        """Return the same with one figure at another value."""
        return dataclasses.replace(self, **{name: self.figure(name).at(value)})


def assume(
    workload: Workload,
    hardware: Hardware,
    *,
    efa: bool = False,
    placement_group: bool = True,
    start_up_s: Figure = START_UP_S,
) -> Assumptions:
    """Return what is assumed of a workload on such nodes. Raises LookupError where its speed is unknown."""
    between = communication.between_nodes(hardware, efa=efa, placement_group=placement_group)
    within = communication.within_node(hardware)
    return Assumptions(
        images_s=compute_rates.images_s(workload.network, workload.precision, hardware),
        evaluation_speed=compute_rates.EVALUATION,
        decode_images_s=workload.program.decode_images_s,
        between_bytes_s=between.bytes_s,
        between_hop_s=between.hop_s,
        within_bytes_s=within.bytes_s,
        within_hop_s=within.hop_s,
        start_up_s=start_up_s,
    )
