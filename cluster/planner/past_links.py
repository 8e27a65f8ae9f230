"""The link between nodes as a fetched benchmark measured it: its bandwidth and latency, out of allreduces."""

from __future__ import annotations

import dataclasses
import math
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
    """With what an allreduce takes beside its messages, as its negotiation, and without the wait for Horovod's cycle,
    which depends on the run."""


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
        ring = _fit([each for each in sums if each.cell.nodes == nodes], bench.cycle_s or 0.0)
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


def _fit(sums: Sequence[Measurement], cycle_s: float) -> tuple[Span, Span] | None:
    """Return bytes a second and seconds a hop of one ring; None where its messages do not tell the two apart.

    The medians of the rounds give the values, each round by itself the range.
    """
    ranks, sizes = sums[0].ranks, [each.cell.message_bytes for each in sums]
    if any(each.ranks != ranks for each in sums) or max(sizes) < LEAST_RATIO * min(sizes):
        return None
    value = _solve(ranks, sizes, [each.median_s for each in sums], cycle_s)
    if value is None:
        return None
    rounds = zip(*(each.seconds for each in sums), strict=False)
    found = [value, *(ring for each in rounds if (ring := _solve(ranks, sizes, each, cycle_s)))]
    bandwidths, hops = zip(*found, strict=True)
    return Span(min(bandwidths), value[0], max(bandwidths)), Span(min(hops), value[1], max(hops))


def _solve(ranks: int, sizes: Sequence[int], seconds: Sequence[float], cycle_s: float) -> tuple[float, float] | None:
    """Return bandwidth and hop with which a ring's times come nearest to the measured ones, in proportion to each.

    n ranks take cycle + 2 (n - 1) (S / n / bandwidth + hop) for S bytes: linear in 1 / bandwidth and hop, so that least
    squares give both. A benchmark waits for a whole cycle before each sum, for it begins one when another has ended.
    None where larger sums took no longer.
    """
    if min(seconds) <= 0:
        return None
    messages = 2 * (ranks - 1)
    per_hop = [messages / each for each in seconds]
    per_byte = [messages * size / ranks / each for size, each in zip(sizes, seconds, strict=True)]
    wanted = [max(0.0, each - cycle_s) / each for each in seconds]
    hh, hb, bb = _dot(per_hop, per_hop), _dot(per_hop, per_byte), _dot(per_byte, per_byte)
    h, b = _dot(per_hop, wanted), _dot(per_byte, wanted)
    determinant = hh * bb - hb * hb
    if determinant <= 0:
        return None
    hop_s, byte_s = (h * bb - b * hb) / determinant, (b * hh - h * hb) / determinant
    if hop_s < 0:
        hop_s, byte_s = 0.0, b / bb
    return (1 / byte_s, hop_s) if byte_s > 0 else None


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(left, right, strict=True))


def _over(spans: Sequence[Span], chosen: Span) -> Span:
    """Return one span over all, with the value of the chosen one."""
    return Span(min(each.low for each in spans), chosen.value, max(each.high for each in spans))


def _figure(spans: Sequence[Span], text: str) -> Figure:
    over = _over(spans, spans[0])
    return Figure(value=over.value, low=over.low, high=over.high, evidence=CALIBRATED, source=text)
