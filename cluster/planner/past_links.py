"""The link between nodes as a fetched benchmark measured it: its bandwidth and latency, out of allreduces."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cluster.bench.measurements import Bench, Measurement
from cluster.errors import DeepcdkError
from cluster.planner.assumptions import Assumptions
from cluster.planner.evidence import CALIBRATED, Figure
from cluster.planner.hardware import Hardware, hardware_of
from cluster.planner.past_records import fabric_of, is_embedded, source, type_of
from cluster.planner.workload import Workload
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
class PastRing:
    """Allreduces over one number of nodes."""

    ranks: int
    sizes: tuple[int, ...]
    """Bytes of the sums, ascending."""
    seconds: tuple[tuple[float, ...], ...]
    """Of each size the time of each round, without the wait for Horovod's cycle."""

    def figures(self, size: float) -> tuple[Span, Span] | None:
        """Return bytes a second, and seconds a hop, with which a ring sums so many bytes in the time measured.

        The medians of the rounds give the values, each round by itself the range. None where the sums do not tell.
        """
        value = self._at(size, [statistics.median(each) for each in self.seconds])
        if value is None:
            return None
        rounds = zip(*self.seconds, strict=False)
        found = [value, *(figures for each in rounds if (figures := self._at(size, each)))]
        bandwidths, hops = zip(*found, strict=True)
        return Span(min(bandwidths), value[0], max(bandwidths)), Span(min(hops), value[1], max(hops))

    def _at(self, size: float, seconds: Sequence[float]) -> tuple[float, float] | None:
        """Return bandwidth and hop from two measured sizes on either side of one, or near it.

        n ranks take 2 (n - 1) (S / n / bandwidth + hop) for S bytes. That is a straight line, and the times measured
        are none: what a host's pauses cost a short sum hides in the time of a longer one. Where the line through the
        two would have a sum of no bytes take less than no time, hops take none and the bandwidth makes up for it, as at
        the smaller of the two for sums below.
        """
        pair = next((pair for pair in self._pairs(size) if seconds[pair[0]] < seconds[pair[1]]), None)
        if pair is None:
            return None
        (small, quick), (large, slow) = ((self.sizes[each], seconds[each]) for each in pair)
        messages, per_byte = 2 * (self.ranks - 1), (slow - quick) / (large - small)
        nothing = quick - small * per_byte
        if nothing < 0:
            at = max(size, small)
            per_byte, nothing = (quick + (at - small) * per_byte) / at, 0.0
        if per_byte <= 0:
            return None
        return messages / self.ranks / per_byte, nothing / messages

    def _pairs(self, size: float) -> Iterator[tuple[int, int]]:
        """Yield the places of two sizes far enough apart, those first between which a sum lies most closely."""
        places = range(len(self.sizes))
        beyond = [place for place in places if self.sizes[place] >= size]
        for high in (*beyond, *reversed(places[: len(places) - len(beyond)])):
            for low in reversed(places[:high]):
                if self.sizes[low] * LEAST_RATIO <= self.sizes[high]:
                    yield low, high


@dataclasses.dataclass(frozen=True, kw_only=True)
class PastLink:
    """What rings of ranks found between nodes of one type."""

    run_id: str
    finished: float
    """Unix time."""
    instance_type: str
    ranks_per_node: int
    embedded: bool
    efa: bool
    together: bool
    """Whether the nodes were in a cluster placement group."""
    rings: Mapping[int, PastRing]
    """By number of nodes."""

    @property
    def nodes(self) -> int:
        """Return the number of nodes of the largest ring."""
        return max(self.rings)

    def figures(self, size: float, nodes: int = 0) -> tuple[Span, Span] | None:
        """Return bytes a second, and seconds a hop, for sums of so many bytes over so many nodes.

        The ring of as many nodes gives the values, else the largest one; the others widen the range. A hop has in it
        what an allreduce takes beside its messages, as its negotiation. None where no ring tells.
        """
        found = {count: figures for count in sorted(self.rings) if (figures := self.rings[count].figures(size))}
        if not found:
            return None
        bandwidth, hop = found.get(nodes) or found[max(found)]
        return _over([each[0] for each in found.values()], bandwidth), _over([each[1] for each in found.values()], hop)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Links:
    """Links of earlier benchmarks, the newest first."""

    found: tuple[PastLink, ...] = ()

    def apply(
        self,
        assumed: Assumptions,
        workload: Workload,
        hardware: Hardware,
        *,
        efa: bool,
        together: bool,
        embedded: bool,
        nodes: int = 0,
    ) -> Assumptions:
        """Return the assumptions with the link between such nodes as the newest benchmark of them found it.

        `nodes`: how many there are to be; 0: it does not matter.
        """
        wanted = (hardware.instance_type, hardware.ranks, efa, together, embedded)
        size = min(workload.gradient_bytes, workload.program.fusion_bytes)
        known = [
            (each, figures)
            for each in self.found
            if (each.instance_type, each.ranks_per_node, each.efa, each.together, each.embedded) == wanted
            and (figures := each.figures(size, nodes))
        ]
        if not known:
            return assumed
        alike = [each for each, _ in known]
        text = source(alike, f"allreduces on {alike[0].nodes} x {alike[0].instance_type}")
        return dataclasses.replace(
            assumed,
            between_bytes_s=_figure([bandwidth for _, (bandwidth, _) in known], text),
            between_hop_s=_figure([hop for _, (_, hop) in known], text),
        )


NO_LINKS: Final = Links()


def bench_link(bench: Bench, record: Mapping[str, Any]) -> PastLink | None:
    """Return the link that a benchmark has measured, None where its allreduces do not tell one."""
    try:
        hardware = hardware_of(type_of(record))
    except DeepcdkError:
        return None
    sums = [each for each in bench.of_kind(ALLREDUCE) if each.cell.nodes > 1 and not each.ranks % each.cell.nodes]
    rings = {}
    for nodes in sorted({each.cell.nodes for each in sums}):
        ring = _ring([each for each in sums if each.cell.nodes == nodes], bench.cycle_s or 0.0)
        if ring and ring.figures(ring.sizes[-1]):
            rings[nodes] = ring
    if not rings:
        return None
    efa, together = fabric_of(record)
    return PastLink(
        run_id=str(record["run_id"]),
        finished=float(record["state"]["updated"]),
        instance_type=hardware.instance_type,
        ranks_per_node=rings[max(rings)].ranks // max(rings),
        embedded=is_embedded(record),
        efa=efa,
        together=together,
        rings=rings,
    )


def _ring(sums: Sequence[Measurement], cycle_s: float) -> PastRing | None:
    """Return the ring of these sums; None where they were not of the same ranks.

    A benchmark waits for a whole cycle before each sum, for it begins one when another has ended.
    """
    if any(each.ranks != sums[0].ranks for each in sums):
        return None
    ascending = sorted(sums, key=lambda each: each.cell.message_bytes)
    return PastRing(
        ranks=sums[0].ranks,
        sizes=tuple(each.cell.message_bytes for each in ascending),
        seconds=tuple(tuple(max(0.0, second - cycle_s) for second in each.seconds) for each in ascending),
    )


def _over(spans: Sequence[Span], chosen: Span) -> Span:
    """Return one span over all, with the value of the chosen one."""
    return Span(min(each.low for each in spans), chosen.value, max(each.high for each in spans))


def _figure(spans: Sequence[Span], text: str) -> Figure:
    over = _over(spans, spans[0])
    return Figure(value=over.value, low=over.low, high=over.high, evidence=CALIBRATED, source=text)
