"""What one run is expected to take and cost before it starts: what `fab train` prints, and the record keeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from cluster.errors import UsageError
from cluster.planner import candidates
from cluster.planner.assumptions import READY_START_UP_S, START_UP_S, assume
from cluster.planner.candidates import Range
from cluster.planner.hardware import Hardware, hardware_of
from cluster.planner.recipe_workload import workload_of
from cluster.planner.run_time import Cluster
from cluster.runs.run_options import CORES
from cluster.terminal.units import duration
from payload.settings import Settings
from stacks.config import ClusterConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunEstimate:
    """The estimate of one run."""

    seconds: Range
    usd: Range | None
    """Of its workers on demand; None where the price is unknown."""
    bottleneck: str

    def __str__(self) -> str:
        """Return the estimate in words."""
        seconds, usd = self.seconds, self.usd
        price = (
            f", ${usd.value:,.2f} for its workers (${usd.low:,.2f} to {usd.high:,.2f})" if usd else ", price unknown"
        )
        span = f"{duration(seconds.low)} to {duration(seconds.high)}"
        return f"estimated: {duration(seconds.value)} ({span}){price}, most of it {self.bottleneck}"

    def document(self) -> dict[str, Any]:
        """Return the estimate as JSON values, for the record of the run."""
        document = dataclasses.asdict(self)
        for name in ("seconds", "usd"):
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
) -> RunEstimate | str:
    """Return the estimate of a recipe on so many nodes, or why there is none. `settings_of`: those of so many ranks."""
    try:
        hardware = _with_ranks(hardware_of(instance_type), ranks_per_node)
        cluster = Cluster(hardware=hardware, nodes=nodes)
        workload = workload_of(settings_of(cluster.ranks), cluster.ranks)
        assumed = assume(
            workload,
            hardware,
            efa=config.efa,
            placement_group=config.placement_group or config.efa,
            start_up_s=READY_START_UP_S if nodes_are_up else START_UP_S,
        )
    except UsageError as error:
        return f"no estimate: {error.rule}"
    except LookupError as error:
        return f"no estimate: {error}"
    seconds, parts = candidates.seconds_in_range(workload, cluster, assumed)
    usd = None if usd_per_hour is None else seconds.times(nodes * usd_per_hour / 3600)
    return RunEstimate(seconds=seconds, usd=usd, bottleneck=parts.bottleneck)


def _with_ranks(hardware: Hardware, ranks_per_node: str) -> Hardware:
    if not ranks_per_node:
        return hardware
    chosen = hardware.cores if ranks_per_node == CORES else int(ranks_per_node)
    return dataclasses.replace(hardware, ranks_per_node=chosen)
