"""The rates of a fetched benchmark: `fab bench` measures in minutes what a run would show in hours."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from cluster.bench.measurements import Bench, Measurement
from cluster.errors import DeepcdkError
from cluster.planner.hardware import Hardware, hardware_of
from cluster.planner.layers import networks
from cluster.planner.past_links import NO_LINKS, Links
from cluster.planner.past_records import is_embedded, type_of
from cluster.planner.past_runs import SINGLE_SPREAD, PastRate, assumed_of, rate_of
from cluster.planner.recipe_workload import PAYLOAD
from cluster.planner.run_time import Cluster
from cluster.planner.workload import Phase, Workload
from payload.settings.bench import TRAINING


def bench_rates(bench: Bench, record: Mapping[str, Any], links: Links = NO_LINKS) -> list[PastRate]:
    """Return a rate for each network and precision of a benchmark: of its largest batch on the fewest nodes.

    Where ranks do not wait for others, and the batch fills what computes, a rate is that of the computation alone.
    """
    try:
        hardware = hardware_of(type_of(record))
    except DeepcdkError:
        return []
    found: dict[tuple[str, str], PastRate] = {}
    for each in sorted(bench.of_kind(TRAINING), key=lambda each: (each.cell.nodes, -each.cell.batch_per_rank)):
        key = (each.cell.network, each.cell.precision)
        if key not in found and (rate := _of_cell(each, hardware, record, links)) is not None:
            found[key] = rate
    return list(found.values())


def _of_cell(cell: Measurement, kind: Hardware, record: Mapping[str, Any], links: Links) -> PastRate | None:
    nodes, ranks = cell.cell.nodes, cell.ranks
    if nodes < 1 or ranks % nodes:
        return None
    hardware = dataclasses.replace(kind, ranks_per_node=ranks // nodes)
    cluster = Cluster(hardware=hardware, nodes=nodes)
    batch = cell.cell.batch_per_rank * ranks
    try:
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
        assumed = assumed_of(workload, hardware, record, links)
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
        instance_type=hardware.instance_type,
        ranks_per_node=hardware.ranks,
        embedded=is_embedded(record),
        nodes=nodes,
        low=value * (1 - SINGLE_SPREAD) if alone else low or value,
        value=value,
        high=value * (1 + SINGLE_SPREAD) if alone else high or value,
    )
