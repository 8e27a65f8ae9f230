"""Replace published and estimated figures with measurements from past runs and benchmarks.

A measurement is used for nodes of the same kind only. The newest run sets the value, and the range spans all runs.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cluster.planner.assumptions import READY_START_UP_S, START_UP_S, Assumptions, assume
from cluster.planner.figure import CALIBRATED, Figure, Range
from cluster.planner.hardware import Hardware
from cluster.planner.workload import Workload

MAX_SPREAD: Final = 2.0
"""Maximum ratio of the slowest to the fastest round. Measurements with a larger ratio are ignored."""
MIN_SIZE_RATIO: Final = 8
"""Minimum ratio of two message sizes from which bandwidth and latency can be separated."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Past:
    """A past run and the kind of its nodes."""

    run_id: str
    finished: float
    """Unix time."""
    instance_type: str
    ranks_per_node: int
    embedded: bool
    """Whether the nodes belonged to an embedded cloud. Its nodes share one machine's processors,
    whatever their type.
    """
    nodes: int

    def is_like(self, hardware: Hardware, *, embedded: bool) -> bool:
        """Return whether nodes with this hardware are comparable to the past run's.

        They must agree in instance type, ranks per node, and `embedded`: whether they are on an embedded cloud.
        """
        ours = (self.instance_type, self.ranks_per_node, self.embedded)
        return ours == (hardware.instance_type, hardware.ranks, embedded)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PastRate(Past):
    """Training speed of one rank in a past run, without the time that the model assigns to communication."""

    network: str
    precision: str
    images_s: Range
    """At the network's published image size, like `Assumptions.images_s`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PastStart(Past):
    """The time that a run took besides its epochs, on nodes that were running."""

    seconds: Range


@dataclasses.dataclass(frozen=True, kw_only=True)
class PastRing:
    """Measured allreduces over one number of nodes."""

    ranks: int
    sizes: tuple[int, ...]
    """Message sizes in bytes, ascending."""
    seconds: tuple[tuple[float, ...], ...]
    """For each size, the time of each round, without the wait for Horovod's cycle."""

    def link(self, size: float) -> tuple[Range, Range] | None:
        """Return the ring's bandwidth (bytes/s) and time per hop (s) that explain the measured time for `size` bytes.

        Values come from the medians of the rounds, ranges from the rounds of the nearest size. Returns None if these
        rounds differ by more than MAX_SPREAD, or if no two sizes are suitable for a fit.
        """
        rounds = self.seconds[min(range(len(self.sizes)), key=lambda place: abs(math.log(self.sizes[place] / size)))]
        if not 0 < max(rounds) <= MAX_SPREAD * min(rounds):
            return None
        found = self._at(size, [statistics.median(each) for each in self.seconds])
        if found is None:
            return None
        middle = statistics.median(rounds)
        down, up = middle / max(rounds), middle / min(rounds)
        bandwidth, hop = found
        return (
            Range(low=bandwidth * down, value=bandwidth, high=bandwidth * up),
            Range(low=hop / up, value=hop, high=hop / down),
        )

    def _at(self, size: float, seconds: Sequence[float]) -> tuple[float, float] | None:
        """Return bandwidth and time per hop, fitted to two measured sizes near `size`; None if no two are suitable.

        The sizes must differ by MIN_SIZE_RATIO, and the larger must take longer. `seconds`: time of an allreduce of
        each size in `sizes`.

        n ranks take 2 (n - 1) (S / n / bandwidth + hop) for S bytes: a straight line. If the line gives a negative time
        for 0 bytes, the hop time is set to 0 and the bandwidth adjusted.
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
        return (messages / self.ranks / per_byte, nothing / messages) if per_byte > 0 else None

    def _pairs(self, size: float) -> Iterator[tuple[int, int]]:
        """Yield the indices of two sizes that are far enough apart, those closest to `size` first."""
        places = range(len(self.sizes))
        beyond = [place for place in places if self.sizes[place] >= size]
        for high in (*beyond, *reversed(places[: len(places) - len(beyond)])):
            for low in reversed(places[:high]):
                if self.sizes[low] * MIN_SIZE_RATIO <= self.sizes[high]:
                    yield low, high


@dataclasses.dataclass(frozen=True, kw_only=True)
class PastLink(Past):
    """Allreduces measured between nodes of one type. `nodes` is the size of the largest ring."""

    efa: bool
    together: bool
    """Whether the nodes were in a cluster placement group."""
    rings: Mapping[int, PastRing]
    """By number of nodes."""

    def link(self, size: float, nodes: int = 0) -> tuple[Range, Range] | None:
        """Return bandwidth (bytes/s) and time per hop (s) for allreduces of `size` bytes over `nodes` nodes; 0 for any
        number.

        They are fitted to the ring of that many nodes. Without such a fit, the largest ring sets the values, and all
        rings the ranges. Returns None if no ring can be fitted. The hop time includes an allreduce's other overhead,
        such as negotiation.
        """
        found = {count: link for count in sorted(self.rings) if (link := self.rings[count].link(size))}
        if not found or nodes in found:
            return found.get(nodes)
        bandwidths, hops = zip(*reversed(found.values()), strict=True)
        return _over(bandwidths), _over(hops)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
    """Measurements of past runs, newest first."""

    links: tuple[PastLink, ...] = ()
    rates: tuple[PastRate, ...] = ()
    starts: tuple[PastStart, ...] = ()
    embedded: bool = False
    """Whether plans are for an embedded cloud. Runs on an embedded cloud are used only for such plans."""

    def assume(
        self,
        workload: Workload,
        hardware: Hardware,
        *,
        efa: bool,
        placement_group: bool,
        nodes: int = 0,
        nodes_are_up: bool = False,
    ) -> Assumptions:
        """Return the assumptions for a workload on nodes with this hardware, calibrated by past runs on such nodes.

        Past runs replace the figures of the links between nodes, of the training speed, and, with `nodes_are_up`, of
        the start-up. `nodes_are_up` means that all nodes are running already. `efa` means that the nodes communicate
        over EFA, `placement_group` that they are close to each other. `nodes` is their number, or 0 for any number.
        Raises LookupError if the speed of the GPU or of the neural network is unknown.
        """
        together = placement_group or efa
        start_up_s = READY_START_UP_S if nodes_are_up else START_UP_S
        assumed = assume(workload, hardware, efa=efa, placement_group=together, start_up_s=start_up_s)
        found: dict[str, Figure] = {}
        size = min(workload.gradient_bytes, workload.program.fusion_bytes)
        links = [
            (each, link)
            for each in self.links
            if each.is_like(hardware, embedded=self.embedded)
            and (each.efa, each.together) == (efa, together)
            and (link := each.link(size, nodes))
        ]
        if links:
            where = f"allreduces on {links[0][0].nodes} x {hardware.instance_type}"
            runs = [each for each, _ in links]
            found["between_bytes_s"] = _figure([bandwidth for _, (bandwidth, _) in links], runs, where)
            found["between_hop_s"] = _figure([hop for _, (_, hop) in links], runs, where)
        rates = [
            each
            for each in self.rates
            if each.is_like(hardware, embedded=self.embedded)
            and (each.network, each.precision) == (workload.network, workload.precision)
        ]
        if rates:
            where = f"on {rates[0].nodes} x {hardware.instance_type}"
            found["images_s"] = _figure([each.images_s for each in rates], rates, where)
        here = (hardware.instance_type, self.embedded)
        starts = [each for each in self.starts if (each.instance_type, each.embedded) == here]
        if starts and nodes_are_up:
            found["start_up_s"] = _figure([each.seconds for each in starts], starts, "all except its epochs")
        return dataclasses.replace(assumed, **found)


NOTHING: Final = Calibration()
"""A calibration without past runs."""


def _over(ranges: Sequence[Range]) -> Range:
    """Return a range that covers all ranges, with the value of the first."""
    return Range(low=min(each.low for each in ranges), value=ranges[0].value, high=max(each.high for each in ranges))


def _figure(ranges: Sequence[Range], runs: Sequence[Past], where: str) -> Figure:
    """Build a figure: the value of the first (newest) range, and the lowest and highest of all ranges.

    Its source names the newest run, followed by `where`: what was measured, and on which nodes.
    """
    day = datetime.datetime.fromtimestamp(runs[0].finished, datetime.UTC)
    count = len({each.run_id for each in runs})
    more = f"; the range is that of {count} runs" if count > 1 else ""
    source = f"run {runs[0].run_id} of {day:%Y-%m-%d}, {where}{more}"
    return Figure(**dataclasses.asdict(_over(ranges)), evidence=CALIBRATED, source=source)
