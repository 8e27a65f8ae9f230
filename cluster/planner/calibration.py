"""Put what earlier runs were measured at in the place of published and estimated figures.

They are read from ./runs, where `fab fetch` brings runs to. A rate counts for the same network, precision, type of node
and ranks a node. The newest run gives the figure; the range spans all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from agent.spec.states import RECORD_FILE
from cluster.bench.measurements import Bench, read_bench
from cluster.errors import DeepcdkError
from cluster.planner.assumptions import Assumptions
from cluster.planner.evidence import CALIBRATED, Figure
from cluster.planner.hardware import Hardware
from cluster.planner.past_benches import bench_rates
from cluster.planner.past_links import NO_LINKS, Links, PastLink, bench_link
from cluster.planner.past_records import source
from cluster.planner.past_runs import PastRate, PastStart, past_rate, past_start
from cluster.planner.workload import Workload
from cluster.report.run_files import read_run
from payload.settings.bench import BENCH_FILE, CHOSEN

Past = TypeVar("Past", PastRate, PastStart, PastLink)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
    """Earlier runs, the newest first, of which those count that were on nodes like the planned ones."""

    links: Links = NO_LINKS
    rates: tuple[PastRate, ...] = ()
    starts: tuple[PastStart, ...] = ()
    embedded: bool = False
    """Whether that is an embedded cloud: its hosts have this machine's processors, so its runs count there alone."""

    def apply(
        self,
        assumed: Assumptions,
        workload: Workload,
        hardware: Hardware,
        *,
        efa: bool,
        together: bool,
        nodes: int = 0,
        nodes_are_up: bool = False,
    ) -> Assumptions:
        """Return the assumptions with what runs like this one were measured at.

        `together`: in a placement group; `nodes`: how many there are to be, 0: it does not matter.
        """
        assumed = self.links.apply(
            assumed, workload, hardware, efa=efa, together=together, embedded=self.embedded, nodes=nodes
        )
        rates = [each for each in self.rates if self._is_like(each, workload, hardware)]
        starts = [
            each
            for each in self.starts
            if each.instance_type == hardware.instance_type and each.embedded == self.embedded
        ]
        if rates:
            assumed = dataclasses.replace(assumed, images_s=_rate(rates))
        if starts and nodes_are_up:
            assumed = dataclasses.replace(assumed, start_up_s=_start(starts))
        return assumed

    def _is_like(self, rate: PastRate, workload: Workload, hardware: Hardware) -> bool:
        ours = (workload.network, workload.precision, hardware.instance_type, hardware.ranks)
        theirs = (rate.network, rate.precision, rate.instance_type, rate.ranks_per_node)
        return ours == theirs and rate.embedded == self.embedded


START_SPREAD: Final = 0.5
"""Range either way of a start-up: estimated. The first run on new nodes proves an allreduce and prepares more than the
next: 31 s and 19 s for two runs, one after the other, on an embedded cloud."""
NOTHING: Final = Calibration()
"""Without any earlier run."""


def read_calibration(folder: Path, *, embedded: bool = False) -> Calibration:
    """Read all runs that were fetched to a folder; one that says nothing of a rate is passed over."""
    benches: list[tuple[Bench, Mapping[str, Any]]] = []
    records: list[Mapping[str, Any]] = []
    for path in sorted(folder.glob(f"*/{RECORD_FILE}")):
        try:
            record = read_run(path.parent).record
            if (path.parent / BENCH_FILE).is_file():
                bench = read_bench(path.parent)
                if bench.tuning == CHOSEN:  # as the runs that are planned will have it
                    benches.append((bench, record))
            else:
                records.append(record)
        except DeepcdkError:
            continue
    # First the links: what a run waited for them does not count as its computation.
    links = Links(found=_newest_first(_known(bench_link(bench, record) for bench, record in benches)))
    rates = [each for bench, record in benches for each in bench_rates(bench, record, links)]
    rates += _known(past_rate(record, links) for record in records)
    starts = _known(past_start(record) for record in records)
    return Calibration(links=links, rates=_newest_first(rates), starts=_newest_first(starts), embedded=embedded)


def _known(found: Iterable[Past | None]) -> list[Past]:
    return [each for each in found if each is not None]


def _newest_first(found: Sequence[Past]) -> tuple[Past, ...]:
    return tuple(sorted(found, key=lambda each: -each.finished))


def _rate(rates: Sequence[PastRate]) -> Figure:
    newest = rates[0]
    where = f"{newest.nodes} x {newest.instance_type}"
    return Figure(
        value=newest.value,
        low=min(each.low for each in rates),
        high=max(each.high for each in rates),
        evidence=CALIBRATED,
        source=source(rates, f"on {where}"),
    )


def _start(starts: Sequence[PastStart]) -> Figure:
    return Figure(
        value=starts[0].seconds,
        low=(1 - START_SPREAD) * min(each.seconds for each in starts),
        high=(1 + START_SPREAD) * max(each.seconds for each in starts),
        evidence=CALIBRATED,
        source=source(starts, "all beside its epochs"),
    )
