"""The time of a run on a number of nodes, and its parts."""

from __future__ import annotations

import dataclasses
import math
from typing import Final

from agent.spec.horovod import cycle_ms
from cluster.planner.assumptions import Assumptions
from cluster.planner.communication import grouped_seconds
from cluster.planner.hardware import Hardware
from cluster.planner.workload import NETWORKS, Phase, Workload

FULL_SIDE: Final = 387
"""Mean of the shorter sides of ImageNet's images, pixels: 469 x 387 on average (Russakovsky et al. 2015, as commonly
quoted).
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """Seconds of a run, by part."""

    compute: float = 0.0
    communication: float = 0.0
    """Waiting for gradients that the computation does not hide."""
    input: float = 0.0
    """Waiting for images, in training and in evaluation."""
    evaluation: float = 0.0
    start_up: float = 0.0

    @property
    def total(self) -> float:
        """Return the sum of all parts, s."""
        return self.compute + self.communication + self.input + self.evaluation + self.start_up

    @property
    def bottleneck(self) -> str:
        """Return the name of the largest part, such as compute or start-up."""
        return str(max(dataclasses.asdict(self).items(), key=lambda part: part[1])[0]).replace("_", "-")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """Nodes of one kind."""

    hardware: Hardware
    nodes: int
    cycle_s: float | None = None
    """Horovod's cycle if it is known; None for the cycle that a run would use."""

    @property
    def ranks(self) -> int:
        """Return the number of ranks on all nodes."""
        return self.nodes * self.hardware.ranks


def run_seconds(workload: Workload, cluster: Cluster, assumed: Assumptions) -> Parts:
    """Return the time of a run, s, by part: compute, communication, input, evaluation and start-up."""
    phases = [_phase_seconds(workload, phase, cluster, assumed) for phase in workload.phases]
    compute, communication, waiting, evaluation = map(sum, zip(*phases, strict=True))
    return Parts(
        compute=compute,
        communication=communication,
        input=waiting,
        evaluation=evaluation,
        start_up=assumed.start_up_s.value,
    )


def _phase_seconds(
    workload: Workload, phase: Phase, cluster: Cluster, assumed: Assumptions
) -> tuple[float, float, float, float]:
    """Return the seconds that all epochs of a phase compute, communicate, wait for images, and evaluate."""
    rate = assumed.images_s.value * (NETWORKS[workload.network].image_size / phase.size) ** 2
    batch = phase.global_batch / cluster.ranks
    steps = math.ceil(workload.training_images / phase.global_batch)
    compute = workload.training_images / cluster.ranks / rate
    waits = steps * _reduction_seconds(workload, batch / rate, cluster, assumed)
    image_s = _decoding_seconds(workload, phase, assumed)
    workers = cluster.nodes * cluster.hardware.vcpus
    alone = image_s if workload.program.batch_by_one_worker else 0.0
    first = batch * alone
    training = max(first + compute + waits, workload.training_images * image_s / workers)
    evaluated = workload.evaluated_images / cluster.ranks / (rate * assumed.evaluation_speed.value)
    first_evaluated = min(phase.evaluation_batch or batch, workload.evaluated_images / cluster.ranks) * alone
    evaluation = max(first_evaluated + evaluated, workload.evaluated_images * image_s / workers)
    waiting = max(0.0, training - compute - waits) + max(0.0, evaluation - evaluated)  # not a rounding error below 0
    return compute * phase.epochs, waits * phase.epochs, waiting * phase.epochs, evaluated * phase.epochs


def _reduction_seconds(workload: Workload, compute_s: float, cluster: Cluster, assumed: Assumptions) -> float:
    """Return how long a step waits for its gradients, s; 0 for a single rank.

    `compute_s` is the duration of the step's computation, from which Horovod's cycle is chosen on CPUs.
    """
    program, cycle_s = workload.program, workload.program.cycle_s
    if cluster.cycle_s is not None:
        cycle_s = cluster.cycle_s
    elif not cluster.hardware.gpus and cluster.ranks > 1:
        # The cycle chosen for cores (docs/tuning.md) costs as much in wake-ups as in waiting.
        cycle_s = 2e-3 * cycle_ms(compute_s * 1e3, cluster.ranks)
    between = (assumed.between_bytes_s.value, assumed.between_hop_s.value)
    link = between if cluster.nodes > 1 else (assumed.within_bytes_s.value, assumed.within_hop_s.value)
    size = float(workload.gradient_bytes)
    return grouped_seconds(size, cluster.ranks, *link, fusion_bytes=program.fusion_bytes, cycle_s=cycle_s)


def _decoding_seconds(workload: Workload, phase: Phase, assumed: Assumptions) -> float:
    """Return the time that one vCPU needs to prepare an image, s, in proportion to its stored pixels; 0
    without JPEG.
    """
    if not workload.jpeg:
        return 0.0
    stored = (phase.stored_side / FULL_SIDE) ** 2 if phase.stored_side else 1.0
    return min(stored, 1.0) / assumed.decode_images_s.value
