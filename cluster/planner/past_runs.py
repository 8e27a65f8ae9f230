"""The rate and the start-up of a run that has ended, by its record: what the planner learns from.

A run counts when a recipe succeeded in one attempt, on nodes of one type.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cluster.errors import UsageError
from cluster.planner.assumptions import Assumptions, assume
from cluster.planner.hardware import Hardware, hardware_of
from cluster.planner.past_links import NO_LINKS, Links
from cluster.planner.past_records import fabric_of, is_embedded, type_of
from cluster.planner.recipe_workload import workload_of
from cluster.planner.run_time import Cluster, run_seconds
from cluster.planner.workload import Workload
from cluster.report.run_files import document, number, whole
from payload.settings import Settings

SINGLE_SPREAD: Final = 0.1
"""Range either way of a rate that was measured once: estimated, for repeats on AWS are not known."""
LEAST_RATE, MOST_RATE = 1e-3, 1e7
"""Images a second of one rank, between which a rate is sought."""
HALVINGS: Final = 60
"""Enough to find a rate to one part in a million between the two."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PastRate:
    """How many images a second one rank trained on, by a run's time without what the model gives its network."""

    run_id: str
    finished: float
    """Unix time."""
    network: str
    precision: str
    instance_type: str
    ranks_per_node: int
    embedded: bool
    """Whether its nodes were an embedded cloud's, with the processors of one machine whatever their type is called."""
    nodes: int
    low: float
    value: float
    high: float
    """At the network's published size, as `Assumptions.images_s`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PastStart:
    """How long a run took beside its epochs, its nodes being up."""

    run_id: str
    finished: float
    instance_type: str
    embedded: bool
    seconds: float


def past_rate(record: Mapping[str, Any], links: Links = NO_LINKS) -> PastRate | None:
    """Return the rate of a run by its record, None where it tells none."""
    run = _whole_run(record)
    if run is None:
        return None
    hardware, result = run
    ranks, settings = whole(result.get("ranks")) or 0, _settings(result)
    training_s, epochs_s = number(result.get("training_seconds")) or 0.0, _epochs(result)
    if settings is None or training_s <= 0 or not epochs_s:
        return None
    cluster = Cluster(hardware=hardware, nodes=ranks // hardware.ranks)
    try:
        workload = workload_of(settings, ranks)
        if workload.epochs != len(epochs_s):
            return None
        value = rate_of(training_s, workload, cluster, assumed_of(workload, cluster, record, links))
    except (LookupError, ValueError, ArithmeticError):
        return None
    if value is None:
        return None
    down, up = _spread(epochs_s)
    return PastRate(
        run_id=str(record["run_id"]),
        finished=float(record["state"]["updated"]),
        network=settings.network,
        precision=settings.precision,
        instance_type=hardware.instance_type,
        ranks_per_node=hardware.ranks,
        embedded=is_embedded(record),
        nodes=cluster.nodes,
        low=value * down,
        value=value,
        high=value * up,
    )


def past_start(record: Mapping[str, Any]) -> PastStart | None:
    """Return how long a run took from its start on the master beside its epochs; None where its record tells none."""
    run = _whole_run(record)
    if run is None:
        return None
    hardware, result = run
    epochs_s = _epochs(result)
    state = record["state"]
    seconds = float(state["updated"]) - float(state["started"]) - sum(epochs_s)
    if not epochs_s or not 0 < seconds < 24 * 3600:
        return None
    return PastStart(
        run_id=str(record["run_id"]),
        finished=float(state["updated"]),
        instance_type=hardware.instance_type,
        embedded=is_embedded(record),
        seconds=seconds,
    )


def rate_of(training_s: float, workload: Workload, cluster: Cluster, assumed: Assumptions) -> float | None:
    """Return the rate of one rank with which the model takes `training_s` for all steps.

    None where the model's network and input alone take as long: then a run says nothing of the computation.
    """

    def seconds(rate: float) -> float:
        parts = run_seconds(workload, cluster, assumed.at("images_s", rate))
        return parts.compute + parts.communication + parts.input

    low, high = LEAST_RATE, MOST_RATE
    if not seconds(high) * 1.01 < training_s < seconds(low):
        return None
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if seconds(middle) > training_s else (low, middle)
    return math.sqrt(low * high)


def _whole_run(record: Mapping[str, Any]) -> tuple[Hardware, Mapping[str, Any]] | None:
    """Return nodes and result of a recipe's run that succeeded in one attempt, on nodes of one known type."""
    result, course = document(record.get("result")), document(record.get("course"))
    whole_run = record["state"]["state"] == "succeeded" and record.get("attempts") == 1 and not course.get("restarts")
    whole_run = whole_run and not course.get("reformed")  # on one number of ranks
    if not whole_run or not result or result.get("resumed_from"):
        return None
    hosts, ranks = document(record.get("spec")).get("hosts"), whole(result.get("ranks")) or 0
    if not isinstance(hosts, list) or not hosts or ranks < 1 or ranks % len(hosts):
        return None
    try:
        hardware = hardware_of(type_of(record))
    except UsageError:
        return None
    return dataclasses.replace(hardware, ranks_per_node=ranks // len(hosts)), result


def assumed_of(workload: Workload, cluster: Cluster, record: Mapping[str, Any], links: Links = NO_LINKS) -> Assumptions:
    """Return what the planner assumes of such a run, with the link as it was measured, if it was.

    Raises LookupError where it knows nothing of the nodes.
    """
    efa, together = fabric_of(record)
    assumed = assume(workload, cluster.hardware, efa=efa, placement_group=together)
    return links.apply(
        assumed,
        workload,
        cluster.hardware,
        efa=efa,
        together=together,
        embedded=is_embedded(record),
        nodes=cluster.nodes,
    )


def _settings(result: Mapping[str, Any]) -> Settings | None:
    """Return the settings of a run, those that this version knows; None where they are none."""
    known = {field.name for field in dataclasses.fields(Settings)}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in document(result.get("settings")).items()
        if name in known
    }
    try:
        return Settings(**values) if values else None
    except (TypeError, ValueError):
        return None


def _epochs(result: Mapping[str, Any]) -> list[float]:
    """Return the seconds of each epoch; none where one of them is no time."""
    given = result.get("epoch_seconds")
    found = [number(each) or 0.0 for each in given] if isinstance(given, list) else []
    return found if all(each > 0 for each in found) else []


def _spread(epochs_s: Sequence[float]) -> tuple[float, float]:
    """Return by which factors the slowest and the quickest epoch differ from the median in rate.

    The first one is left out, in which TensorFlow compiles.
    """
    later = epochs_s[1:]
    if len(later) < 2:
        return 1 - SINGLE_SPREAD, 1 + SINGLE_SPREAD
    middle = statistics.median(later)
    return min(1.0, middle / max(later)), max(1.0, middle / min(later))
