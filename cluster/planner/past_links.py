"""The link between nodes as a fetched benchmark measured it: bandwidth and latency out of allreduces of two sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cluster.bench.measurements import Bench, Measurement
from cluster.errors import DeepcdkError
from cluster.planner.assumptions import Assumptions
from cluster.planner.evidence import CALIBRATED, Figure
from cluster.planner.hardware import Hardware, hardware_of
from cluster.planner.past_records import fabric_of, is_embedded, source, type_of
from payload.settings.bench import ALLREDUCE

LEAST_RATIO: Final = 8
"""Of the largest message to the smallest, from which on the two tell bandwidth from latency."""


@dataclasses.dataclass(frozen=True)
class Span:
    """A measured number with the range of its rounds and numbers of nodes."""

    low: float
    value: float
    high: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class PastLink:
    """What a ring of ranks found between nodes of one type."""

    run_id: str
    finished: float
    """Unix time."""
    instance_type: str
    ranks_per_node: int
    embedded: bool
    efa: bool
    together: bool
    """Whether the nodes were in a cluster placement group."""
    nodes: int
    """Of the largest ring, which gives the values."""
    bytes_s: Span
    hop_s: Span
    """With what an allreduce takes beside its messages: its negotiation, and the wait for Horovod's cycle."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Links:
    """Links of earlier benchmarks, the newest first."""

    found: tuple[PastLink, ...] = ()

    def apply(
        self, assumed: Assumptions, hardware: Hardware, *, efa: bool, together: bool, embedded: bool
    ) -> Assumptions:
        """Return the assumptions with the link between such nodes as the newest benchmark of them found it."""
        wanted = (hardware.instance_type, hardware.ranks, efa, together, embedded)
        alike = [
            each
            for each in self.found
            if (each.instance_type, each.ranks_per_node, each.efa, each.together, each.embedded) == wanted
        ]
        if not alike:
            return assumed
        text = source(alike, f"allreduces on {alike[0].nodes} x {alike[0].instance_type}")
        return dataclasses.replace(
            assumed,
            between_bytes_s=_figure([each.bytes_s for each in alike], text),
            between_hop_s=_figure([each.hop_s for each in alike], text),
        )


NO_LINKS: Final = Links()


def bench_link(bench: Bench, record: Mapping[str, Any]) -> PastLink | None:
    """Return the link that a benchmark has measured, None where its allreduces do not tell one."""
    try:
        hardware = hardware_of(type_of(record))
    except DeepcdkError:
        return None
    sums = [each for each in bench.of_kind(ALLREDUCE) if each.cell.nodes > 1 and not each.ranks % each.cell.nodes]
    fitted = {}
    for nodes in sorted({each.cell.nodes for each in sums}):
        ring = _fit([each for each in sums if each.cell.nodes == nodes])
        if ring is not None:
            fitted[nodes] = ring
    if not fitted:
        return None
    largest = max(fitted)
    efa, together = fabric_of(record)
    return PastLink(
        run_id=str(record["run_id"]),
        finished=float(record["state"]["updated"]),
        instance_type=hardware.instance_type,
        ranks_per_node=next(each.ranks // largest for each in sums if each.cell.nodes == largest),
        embedded=is_embedded(record),
        efa=efa,
        together=together,
        nodes=largest,
        bytes_s=_over([ring[0] for ring in fitted.values()], fitted[largest][0]),
        hop_s=_over([ring[1] for ring in fitted.values()], fitted[largest][1]),
    )


def _fit(sums: Sequence[Measurement]) -> tuple[Span, Span] | None:
    """Return bytes a second and seconds a hop of one ring; None where its messages do not tell the two apart.

    n ranks take 2 (n - 1) (S / n / bandwidth + hop) for S bytes: two equations, of the smallest and the largest.
    """
    small, large = sums[0], sums[-1]
    ranks, size, hops = small.ranks, small.cell.message_bytes, 2 * (small.ranks - 1)
    if large.ranks != ranks or large.cell.message_bytes < LEAST_RATIO * size:
        return None
    longer = [seconds - small.median_s for seconds in (max(large.seconds), large.median_s, min(large.seconds))]
    if min(longer) <= 0:
        return None
    more = (large.cell.message_bytes - size) / ranks
    bandwidth = Span(*(hops * more / seconds for seconds in longer))
    carried = size / ranks / bandwidth.value
    each = (min(small.seconds), small.median_s, max(small.seconds))
    return bandwidth, Span(*(max(0.0, seconds / hops - carried) for seconds in each))


def _over(spans: Sequence[Span], chosen: Span) -> Span:
    """Return one span over all, with the value of the chosen one."""
    return Span(min(each.low for each in spans), chosen.value, max(each.high for each in spans))


def _figure(spans: Sequence[Span], text: str) -> Figure:
    over = _over(spans, spans[0])
    return Figure(value=over.value, low=over.low, high=over.high, evidence=CALIBRATED, source=text)
