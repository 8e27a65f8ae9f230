"""The rates of a fetched benchmark: `fab bench` measures in minutes what a run would show in hours."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from cluster.bench.measurements import Bench, Measurement
from cluster.errors import DeepcdkError
from cluster.planner.assumptions import Assumptions
from cluster.planner.hardware import hardware_of
from cluster.planner.layers import networks
from cluster.planner.past_links import NO_LINKS, Links
from cluster.planner.past_records import is_embedded, type_of
from cluster.planner.past_runs import SINGLE_SPREAD, PastRate, assumed_of, rate_of
from cluster.planner.recipe_workload import PAYLOAD
from cluster.planner.run_time import Cluster, run_seconds
from cluster.planner.workload import Phase, Workload
from payload.settings.bench import TRAINING


def bench_rates(bench: Bench, record: Mapping[str, Any], links: Links = NO_LINKS) -> list[PastRate]:
    """Return a rate for each network and precision of a benchmark: of its largest batch on the fewest nodes.

    Where ranks do not wait for others, and the batch fills what computes, a rate is that of the computation alone.
    """
    found: dict[tuple[str, str], PastRate] = {}
    for each in sorted(bench.of_kind(TRAINING), key=lambda each: (each.cell.nodes, -each.cell.batch_per_rank)):
        key = (each.cell.network, each.cell.precision)
        if key not in found and (rate := _of_cell(each, record, links, bench.cycle_s)) is not None:
            found[key] = rate
    return list(found.values())


def predicted_step_s(
    cell: Measurement, rate: PastRate, record: Mapping[str, Any], links: Links, cycle_s: float | None = None
) -> float | None:
    """Return how long the planner expects a step of a cell to take, at this rate of one rank and over these links.

    `cycle_s`: Horovod's in the benchmark, None: as a run would have it. None where it knows nothing of the nodes or the
    network.
    """
    modelled = _modelled(cell, record, links, cycle_s)
    if modelled is None:
        return None
    workload, cluster, assumed = modelled
    parts = run_seconds(workload, cluster, assumed.at("images_s", rate.value))
    return parts.compute + parts.communication + parts.input


def _modelled(
    cell: Measurement, record: Mapping[str, Any], links: Links, cycle_s: float | None
) -> tuple[Workload, Cluster, Assumptions] | None:
    """Return one step of a cell as a workload, its nodes, and what is assumed of them."""
    nodes, ranks = cell.cell.nodes, cell.ranks
    if nodes < 1 or ranks % nodes:
        return None
    batch = cell.cell.batch_per_rank * ranks
    try:
        hardware = dataclasses.replace(hardware_of(type_of(record)), ranks_per_node=ranks // nodes)
        known = networks()[cell.cell.network]
        workload = Workload(
            network=cell.cell.network,
            precision=cell.cell.precision,
            gradient_bytes=4 * known.weights,
            training_images=batch,
            evaluated_images=0,
            phases=(Phase(epochs=1, size=cell.cell.image_size or known.image_size, global_batch=batch),),
            jpeg=False,
            program=PAYLOAD,
        )
        cluster = Cluster(hardware=hardware, nodes=nodes, cycle_s=cycle_s)
        assumed = assumed_of(workload, cluster, record, links)
    except (DeepcdkError, LookupError, ValueError, ArithmeticError):
        return None
    return workload, cluster, assumed


def _of_cell(cell: Measurement, record: Mapping[str, Any], links: Links, cycle_s: float | None) -> PastRate | None:
    modelled = _modelled(cell, record, links, cycle_s)
    if modelled is None:
        return None
    workload, cluster, assumed = modelled
    try:
        low, value, high = (
            rate_of(seconds, workload, cluster, assumed)
            for seconds in (max(cell.seconds), cell.median_s, min(cell.seconds))
        )
    except (LookupError, ValueError, ArithmeticError):
        return None
    if value is None:
        return None
    alone = len(cell.seconds) < 2
    return PastRate(
        run_id=str(record["run_id"]),
        finished=float(record["state"]["updated"]),
        network=workload.network,
        precision=workload.precision,
        instance_type=cluster.hardware.instance_type,
        ranks_per_node=cluster.hardware.ranks,
        embedded=is_embedded(record),
        nodes=cluster.nodes,
        low=value * (1 - SINGLE_SPREAD) if alone else low or value,
        value=value,
        high=value * (1 + SINGLE_SPREAD) if alone else high or value,
    )
