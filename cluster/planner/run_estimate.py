"""Estimate a run's time and cost before it starts. `fab train` prints the estimate and the run's record keeps it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from cluster.errors import UsageError
from cluster.planner import candidates
from cluster.planner.calibration import NOTHING, Calibration
from cluster.planner.figure import CALIBRATED, Range
from cluster.planner.hardware import Hardware, hardware_of
from cluster.planner.run_time import Cluster, Parts
from cluster.planner.workload import workload_of
from cluster.runs.run_options import CORES
from cluster.terminal.units import duration
from payload.settings import Settings
from stacks.config import ClusterConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunEstimate:
    """Estimate of one run."""

    seconds: Range
    usd: Range | None
    """Cost of the run's workers on demand; None if the price is unknown."""
    bottleneck: str
    epochs: int
    parts: Parts
    """The expected seconds, by part of the run."""
    images_per_s: float
    """Of all ranks together while they train, including waits."""
    rate_source: str
    """Source of the figure for one rank's training speed."""

    def __str__(self) -> str:
        """Return the estimate as a sentence: time and price with their ranges, the bottleneck, and the past run used,
        if any.
        """
        seconds, usd = self.seconds, self.usd
        price = (
            f", ${usd.value:,.2f} for its workers (${usd.low:,.2f} to {usd.high:,.2f})" if usd else ", price unknown"
        )
        span = f"{duration(seconds.low)} to {duration(seconds.high)}"
        evidence, _, source = self.rate_source.partition(": ")
        learnt = f"; training speed from {source}" if evidence == CALIBRATED else ""
        return f"estimated: {duration(seconds.value)} ({span}){price}, most of it {self.bottleneck}{learnt}"

    def document(self) -> dict[str, Any]:
        """Return the fields as JSON values, with rounded numbers, for the run's record."""
        document = dataclasses.asdict(self)
        document["images_per_s"] = round(self.images_per_s, 1)
        for name in ("seconds", "usd", "parts"):
            if document[name]:
                document[name] = {key: round(value, 3) for key, value in document[name].items()}
        return document


def estimate_run(
    settings_of: Callable[[int], Settings],
    instance_type: str,
    nodes: int,
    config: ClusterConfig,
    *,
    nodes_are_up: bool,
    usd_per_hour: float | None,
    ranks_per_node: str = "",
    calibration: Calibration = NOTHING,
) -> RunEstimate | str:
    """Estimate a recipe on this number of nodes. If that is impossible, return the reason: "no estimate: ..."

    `settings_of` returns the recipe's settings for a number of ranks. `nodes_are_up` means that all nodes are running
    already. `usd_per_hour` is the price of one node, None if it is unknown. `ranks_per_node` is the value of
    --ranks-per-node, `calibration` has measurements of past runs. Raises the UsageError of `settings_of` for settings
    that are invalid for this number of ranks, with which the run would fail.
    """
    try:
        hardware = _with_ranks(hardware_of(instance_type), ranks_per_node)
    except UsageError as error:
        return f"no estimate: {error.value}: {error.rule}"
    cluster = Cluster(hardware=hardware, nodes=nodes)
    settings = settings_of(cluster.ranks)
    try:
        workload = workload_of(settings, cluster.ranks)
        assumed = calibration.assume(
            workload,
            hardware,
            efa=config.efa,
            placement_group=config.placement_group,
            nodes=nodes,
            nodes_are_up=nodes_are_up,
        )
    except UsageError as error:
        return f"no estimate: {error.rule}"
    except LookupError as error:
        return f"no estimate: {error}"
    seconds, parts = candidates.seconds_in_range(workload, cluster, assumed)
    usd = None if usd_per_hour is None else seconds.times(nodes * usd_per_hour / 3600)
    trained = sum(phase.epochs for phase in workload.phases) * workload.training_images
    rate = assumed.images_s
    return RunEstimate(
        seconds=seconds,
        usd=usd,
        bottleneck=parts.bottleneck,
        epochs=settings.total_epochs,
        parts=parts,
        images_per_s=trained / (parts.compute + parts.communication + parts.input),
        rate_source=f"{rate.evidence}: {rate.source}",
    )


def _with_ranks(hardware: Hardware, ranks_per_node: str) -> Hardware:
    """Return the hardware with the number of ranks that --ranks-per-node asks for: a number, "cores", or "" for the
    default.
    """
    if not ranks_per_node:
        return hardware
    chosen = hardware.cores if ranks_per_node == CORES else int(ranks_per_node)
    return dataclasses.replace(hardware, ranks_per_node=chosen)
