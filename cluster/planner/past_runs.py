"""Read past runs and benchmarks from ./runs, the folder that `fab fetch` writes, to calibrate the planner."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.spec.run_states import RECORD_FILE
from cluster.bench.measurements import Bench, Measurement, read_bench
from cluster.errors import DeepcdkError
from cluster.planner.assumptions import Assumptions
from cluster.planner.calibration import MAX_SPREAD, Calibration, PastLink, PastRate, PastRing, PastStart
from cluster.planner.figure import Range
from cluster.planner.hardware import hardware_of
from cluster.planner.run_time import Cluster, run_seconds
from cluster.planner.workload import NETWORKS, PAYLOAD, Phase, Workload, workload_of
from cluster.report.run_files import document, number, read_run, whole
from payload.settings import Settings
from payload.settings.bench import ALLREDUCE, BENCH_FILE, CHOSEN, TRAINING

SINGLE_SPREAD: Final = 0.1
"""Relative range of a rate that was measured once. Estimated, because the variation of repeats on AWS is unknown."""
START_SPREAD: Final = 0.5
"""Relative range of a start-up time; estimated. The first run on new nodes takes longer than the next: 31 s and 19 s
for two runs on an embedded cloud.
"""
MIN_RATE, MAX_RATE = 1e-3, 1e7
"""Limits of the search for a rank's rate, images per second."""
HALVINGS: Final = 60
"""Bisection steps: enough to find a rate to one part in a million."""
NO_FIGURE: Final = (DeepcdkError, LookupError, TypeError, ValueError, ArithmeticError)
"""Errors of the functions below for a record that lacks a figure."""


def read_calibration(folder: Path, *, embedded: bool = False) -> Calibration:
    """Read the measured times and rates of all runs in a folder of fetched runs. Without the folder, there are none.

    Skipped are figures that a run lacks, runs without a valid record, and benchmarks with `fab bench --tuning
    defaults`. `embedded`: whether plans are for an embedded cloud.
    """
    benches: list[tuple[Bench, Mapping[str, Any]]] = []
    records: list[Mapping[str, Any]] = []
    for path in folder.glob(f"*/{RECORD_FILE}"):
        with contextlib.suppress(DeepcdkError):
            record = read_run(path.parent).record
            if not (path.parent / BENCH_FILE).is_file():
                records.append(record)
            elif (bench := read_bench(path.parent)).tuning == CHOSEN:  # planned runs use the chosen tuning too
                benches.append((bench, record))
    links, rates, starts = list[PastLink](), list[PastRate](), list[PastStart]()
    for bench, record in benches:
        with contextlib.suppress(*NO_FIGURE):
            links.append(bench_link(bench, record))
    # Read links first: the time that a run waited for them is not part of its computation.
    links.sort(key=lambda each: -each.finished)
    for bench, record in benches:
        rates += bench_rates(bench, record, links)
    for record in records:
        with contextlib.suppress(*NO_FIGURE):
            rates.append(past_rate(record, links))
        with contextlib.suppress(*NO_FIGURE):
            starts.append(past_start(record))
    rates.sort(key=lambda each: -each.finished)
    starts.sort(key=lambda each: -each.finished)
    return Calibration(links=tuple(links), rates=tuple(rates), starts=tuple(starts), embedded=embedded)


def past_rate(record: Mapping[str, Any], links: Sequence[PastLink] = ()) -> PastRate:
    """Return the training speed of a recipe's run. Raises one of NO_FIGURE if the record is incomplete or unusable.

    `links` are measured links between nodes, to separate the computation from the communication.
    """
    cluster, result = _whole_run(record)
    known = {field.name for field in dataclasses.fields(Settings)}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in document(result.get("settings")).items()
        if name in known
    }
    if not values:
        raise LookupError("the run has no settings")
    settings = Settings(**values)
    workload, epochs_s = workload_of(settings, cluster.ranks), _epochs(result)
    if workload.epochs != len(epochs_s):
        raise LookupError("the run did not train all epochs of its settings")
    training_s = number(result.get("training_seconds")) or 0.0
    value = rate_of(training_s, workload, cluster, _assumed_of(workload, cluster, record, links))
    down, up = _spread(epochs_s[1:])  # TensorFlow compiles in the first epoch
    spread = Range(low=max(down, 1 / MAX_SPREAD), value=1.0, high=min(up, MAX_SPREAD))
    return PastRate(
        **_past(record, cluster),
        network=settings.network,
        precision=settings.precision,
        images_s=spread.times(value),
    )


def past_start(record: Mapping[str, Any]) -> PastStart:
    """Return the start-up time of a recipe's run: its time from the start on the master to its end, without its epochs.

    Raises one of NO_FIGURE if the record is incomplete or unusable.
    """
    cluster, result = _whole_run(record)
    state = record["state"]
    seconds = float(state["updated"]) - float(state["started"]) - sum(_epochs(result))
    if not 0 < seconds < 24 * 3600:
        raise LookupError("the run's time outside of its epochs must be between 0 and 24 hours")
    spread = Range(low=1 - START_SPREAD, value=1.0, high=1 + START_SPREAD)
    return PastStart(**_past(record, cluster), seconds=spread.times(seconds))


def bench_rates(bench: Bench, record: Mapping[str, Any], links: Sequence[PastLink] = ()) -> list[PastRate]:
    """Return one training speed for each network and precision of a benchmark, without those that cannot be computed.

    The speed is taken from the fewest nodes, and there from the largest batch, because the ranks wait least for each
    other. Incomplete or too uneven measurements are skipped. `links` are measured links between nodes, to separate the
    computation from the communication.
    """
    found: dict[tuple[str, str], PastRate] = {}
    for each in sorted(bench.of_kind(TRAINING), key=lambda each: (each.cell.nodes, -each.cell.batch_per_rank)):
        key = (each.cell.network, each.cell.precision)
        with contextlib.suppress(*NO_FIGURE):
            if key not in found and max(each.seconds) <= MAX_SPREAD * min(each.seconds):
                workload, cluster, assumed = _step(each, record, links, bench.cycle_s)
                down, up = _spread(each.seconds)
                value = rate_of(each.median_s, workload, cluster, assumed)
                images_s = Range(low=down, value=1.0, high=up).times(value)
                network, precision = key
                found[key] = PastRate(**_past(record, cluster), network=network, precision=precision, images_s=images_s)
    return list(found.values())


def bench_link(bench: Bench, record: Mapping[str, Any]) -> PastLink:
    """Return the link between nodes that a benchmark's allreduces measured, with one ring per number of nodes.

    Horovod's cycle is subtracted from each time, because a benchmark waits for a whole cycle before each allreduce.
    Raises one of NO_FIGURE if the measurements are incomplete or unusable.
    """
    cycle_s, rings = bench.cycle_s or 0.0, dict[int, PastRing]()
    for nodes in {each.cell.nodes for each in bench.of_kind(ALLREDUCE) if each.cell.nodes > 1}:
        sums = [each for each in bench.of_kind(ALLREDUCE) if each.cell.nodes == nodes]
        sums.sort(key=lambda each: each.cell.message_bytes)
        ranks = {each.ranks for each in sums}
        ring = PastRing(
            ranks=max(ranks),
            sizes=tuple(each.cell.message_bytes for each in sums),
            seconds=tuple(tuple(max(0.0, second - cycle_s) for second in each.seconds) for each in sums),
        )
        if len(ranks) == 1 and not ring.ranks % nodes and ring.link(ring.sizes[-1]):
            rings[nodes] = ring
    largest = max(rings)
    hardware = dataclasses.replace(hardware_of(_type_of(record)), ranks_per_node=rings[largest].ranks // largest)
    efa, together = _fabric_of(record)
    return PastLink(**_past(record, Cluster(hardware=hardware, nodes=largest)), efa=efa, together=together, rings=rings)


def rate_of(training_s: float, workload: Workload, cluster: Cluster, assumed: Assumptions) -> float:
    """Return the training speed of one rank, images/s, that makes the model's steps take `training_s` in total.

    Raises LookupError if no speed from MIN_RATE to MAX_RATE does, for example because network and input alone take that
    long in the model.
    """

    def seconds(rate: float) -> float:
        return _training_s(workload, cluster, assumed.at("images_s", rate))

    low, high = MIN_RATE, MAX_RATE
    if not seconds(high) * 1.01 < training_s < seconds(low):
        raise LookupError("no speed of the computation explains the time of the training steps")
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if seconds(middle) > training_s else (low, middle)
    return math.sqrt(low * high)


def _training_s(workload: Workload, cluster: Cluster, assumed: Assumptions) -> float:
    parts = run_seconds(workload, cluster, assumed)
    return parts.compute + parts.communication + parts.input


def _step(
    cell: Measurement, record: Mapping[str, Any], links: Sequence[PastLink], cycle_s: float | None
) -> tuple[Workload, Cluster, Assumptions]:
    """Return a benchmark cell as a workload of one step, with its nodes and the assumptions about them.

    Raises LookupError if the nodes had different numbers of ranks.
    """
    nodes, ranks, known = cell.cell.nodes, cell.ranks, NETWORKS[cell.cell.network]
    if ranks % nodes:
        raise LookupError("the nodes of the run had different numbers of ranks")
    batch = cell.cell.batch_per_rank * ranks
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
    hardware = dataclasses.replace(hardware_of(_type_of(record)), ranks_per_node=ranks // nodes)
    cluster = Cluster(hardware=hardware, nodes=nodes, cycle_s=cycle_s)
    return workload, cluster, _assumed_of(workload, cluster, record, links)


def _assumed_of(
    workload: Workload, cluster: Cluster, record: Mapping[str, Any], links: Sequence[PastLink]
) -> Assumptions:
    """Return the planner's assumptions for a past run, with measured links if there are any."""
    efa, together = _fabric_of(record)
    known = Calibration(links=tuple(links), embedded=_is_embedded(record))
    return known.assume(workload, cluster.hardware, efa=efa, placement_group=together, nodes=cluster.nodes)


def _whole_run(record: Mapping[str, Any]) -> tuple[Cluster, Mapping[str, Any]]:
    """Return nodes and result of a recipe's run. Raises one of NO_FIGURE unless it succeeded in one attempt.

    Also raises it if the run was resumed, or if its nodes did not have one known type and equal numbers of ranks.
    """
    result, course = document(record.get("result")), document(record.get("course"))
    if record["state"]["state"] != "succeeded" or record.get("attempts") != 1 or course.get("restarts"):
        raise LookupError("the run did not succeed in one attempt")
    if result.get("resumed_from"):
        raise LookupError("the run was resumed")
    nodes, ranks = len(record["spec"]["hosts"]), whole(result.get("ranks")) or 0
    if ranks < 1 or ranks % nodes:
        raise LookupError("the nodes of the run had different numbers of ranks")
    hardware = dataclasses.replace(hardware_of(_type_of(record)), ranks_per_node=ranks // nodes)
    return Cluster(hardware=hardware, nodes=nodes), result


def _epochs(result: Mapping[str, Any]) -> list[float]:
    """Return the seconds of each epoch. Raises LookupError if they are missing."""
    found = [number(each) or 0.0 for each in result["epoch_seconds"]]
    if not found or min(found) <= 0:
        raise LookupError("the run recorded no epoch times")
    return found


def _spread(seconds: Sequence[float]) -> tuple[float, float]:
    """Return the lowest and the highest rate as factors of the median rate, from times in seconds.

    One value gives 1 +- SINGLE_SPREAD.
    """
    if len(seconds) < 2:
        return 1 - SINGLE_SPREAD, 1 + SINGLE_SPREAD
    middle = statistics.median(seconds)
    return middle / max(seconds), middle / min(seconds)


def _past(record: Mapping[str, Any], cluster: Cluster) -> dict[str, Any]:
    """Return the values of the fields of `Past` for a run's record, by the fields' names. `cluster` are the run's
    nodes.
    """
    return {
        "run_id": str(record["run_id"]),
        "finished": float(record["state"]["updated"]),
        "instance_type": cluster.hardware.instance_type,
        "ranks_per_node": cluster.hardware.ranks,
        "embedded": _is_embedded(record),
        "nodes": cluster.nodes,
    }


def _is_embedded(record: Mapping[str, Any]) -> bool:
    """Return whether a run's nodes belonged to an embedded cloud. A record without an endpoint counts as embedded."""
    return document(record.get("origin")).get("endpoint") != ""


def _type_of(record: Mapping[str, Any]) -> str:
    """Return the instance type of a run's nodes. Raises KeyError or ValueError if it is unknown or there
    are several.
    """
    instances = document(document(record.get("origin")).get("instance_types"))
    (found,) = {str(instances[host["instance_id"]]) for host in record["spec"]["hosts"]}
    return found


def _fabric_of(record: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether a run's nodes had EFA, and whether they were in a placement group. EFA requires a
    placement group.
    """
    config = document(document(record.get("origin")).get("config"))
    efa = config.get("efa") is True
    return efa, efa or config.get("placement_group") is True
