"""The model's assumptions about one kind of node. Each figure has a range and a source."""

from __future__ import annotations

import dataclasses

from cluster.planner import communication, compute_rates
from cluster.planner.figure import ESTIMATED, Figure
from cluster.planner.hardware import Hardware
from cluster.planner.workload import Workload

START_UP_S = Figure(
    value=240,
    low=60,
    high=600,
    evidence=ESTIMATED,
    source="boot, registration, preparation, pre-flight and the first steps; on the embedded cloud 6.5 s if the "
    "nodes are running",
)
"""Time from the command to the first step if the nodes must be launched first. Not measured on AWS."""
READY_START_UP_S = Figure(
    value=30,
    low=6,
    high=90,
    evidence=ESTIMATED,
    source="6.5 s measured on the embedded cloud; TensorFlow takes longer to load on GPUs",
)
"""Time from the command to the first step if the nodes are running."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assumptions:
    """The figures for one workload on one kind of node."""

    images_s: Figure
    """Training speed of one rank at the network's published image size."""
    evaluation_speed: Figure
    """Images evaluated in the time it takes to train on one."""
    decode_images_s: Figure
    """Images that one vCPU decodes per second."""
    between_bytes_s: Figure
    between_hop_s: Figure
    within_bytes_s: Figure
    within_hop_s: Figure
    start_up_s: Figure

    def figure(self, name: str) -> Figure:
        """Return the figure in the field `name`, such as `images_s`."""
        found: Figure = getattr(self, name)
        return found

    def at(self, name: str, value: float) -> Assumptions:
        """Return a copy with the figure in the field `name` set to another value, without a range."""
        return dataclasses.replace(self, **{name: self.figure(name).at(value)})


def assume(
    workload: Workload,
    hardware: Hardware,
    *,
    efa: bool = False,
    placement_group: bool = True,
    start_up_s: Figure = START_UP_S,
) -> Assumptions:
    """Return the assumptions for a workload on nodes with this hardware, from published and estimated figures alone.

    With `efa`, the nodes communicate over EFA, with `placement_group` they are close to each other. `start_up_s` is the
    time of a run besides its epochs; its default includes the launch of the nodes. Raises LookupError if the speed of
    the GPU or of the neural network is unknown.
    """
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
