"""Read what a benchmark has measured. The master wrote it, so that a line that holds no figure is left out."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.spec.horovod import OWN_CYCLE_MS
from cluster import answers
from cluster.errors import DeepcdkError
from payload.settings.bench import (
    ALLREDUCE,
    BENCH_FILE,
    CHOSEN,
    DEFAULTS,
    INPUT,
    KINDS,
    PLACES,
    READ,
    TRAINING,
    WRITE,
    Cell,
)
from payload.settings.precision import NUMBER_FORMATS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
    """One cell over all rounds."""

    cell: Cell
    ranks: int
    seconds: tuple[float, ...]
    """Of each round the median step of the slowest rank."""

    @property
    def median_s(self) -> float:
        """Return the median of the rounds."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Return how far apart the quickest and the slowest round are, as a fraction of the median."""
        return (max(self.seconds) - min(self.seconds)) / self.median_s

    @property
    def images_per_s(self) -> float:
        """Return the images of all ranks in a second; 0 where there are none."""
        return self.cell.batch_per_rank * self.ranks / self.median_s

    @property
    def algorithm_bytes_per_s(self) -> float:
        """Return the size of the tensor over the time, as nccl-tests' algbw; 0 for training."""
        return self.cell.message_bytes / self.median_s

    @property
    def file_bytes_per_s(self) -> float:
        """Return what all nodes together have written or read in a second; only of a file's cell."""
        return self.cell.message_bytes * self.cell.nodes / self.median_s

    @property
    def bus_bytes_per_s(self) -> float:
        """Return what each rank's link has carried in a second, as nccl-tests' busbw: 2(n-1)/n of algbw.

        A ring sends each byte of the sum n-1 times on, and of the result n-1 times, in n parts at a time
        (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
        """
        return self.algorithm_bytes_per_s * 2 * (self.ranks - 1) / self.ranks


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """What a benchmark has measured."""

    run_id: str
    measurements: tuple[Measurement, ...]
    """In the order of their cells."""
    origin: Mapping[str, Any]
    """Machine, hosts, versions and arguments of the last attempt."""

    @property
    def tuning(self) -> str:
        """Return which tuning the ranks had, of TUNINGS; those of versions that know no other had the chosen one."""
        words = self.origin.get("arguments")
        known = isinstance(words, list) and "--tuning" in words[:-1] and words[words.index("--tuning") + 1] == DEFAULTS
        return DEFAULTS if known else CHOSEN

    @property
    def cycle_s(self) -> float | None:
        """Return the cycle of Horovod with which everything was measured, s; None where the origin tells no tuning."""
        tuning = self.origin.get("tuning")
        if not isinstance(tuning, Mapping):
            return None
        chosen = tuning.get("cycle_time_ms")
        return (chosen if isinstance(chosen, int | float) and 0 < chosen < math.inf else OWN_CYCLE_MS) / 1e3

    def of_kind(self, *kinds: str) -> tuple[Measurement, ...]:
        """Return the measurements of these kinds."""
        return tuple(each for each in self.measurements if each.cell.kind in kinds)

    def efficiency(self, measurement: Measurement) -> float | None:
        """Return images/s against linear from the fewest nodes of the same network and batch; None for an allreduce."""
        cell = measurement.cell
        if cell.kind != TRAINING:
            return None
        alike = [m for m in self.of_kind(TRAINING) if dataclasses.replace(m.cell, nodes=cell.nodes) == cell]
        base = min(alike, key=lambda each: each.ranks)
        return measurement.images_per_s / measurement.ranks / (base.images_per_s / base.ranks)

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        training = [
            {
                **_common(each),
                "network": each.cell.network,
                "precision": each.cell.precision,
                "batch_per_rank": each.cell.batch_per_rank,
                "image_size": each.cell.image_size,
                "images_per_s": each.images_per_s,
                "efficiency": self.efficiency(each),
            }
            for each in self.of_kind(TRAINING)
        ]
        sums = [
            {
                **_common(each),
                "message_bytes": each.cell.message_bytes,
                "algorithm_bytes_per_s": each.algorithm_bytes_per_s,
                "bus_bytes_per_s": each.bus_bytes_per_s,
            }
            for each in self.of_kind(ALLREDUCE)
        ]
        inputs = [
            {**_common(each), "image_size": each.cell.image_size, "images_per_s": each.images_per_s}
            for each in self.of_kind(INPUT)
        ]
        files = [
            {
                **_common(each),
                "operation": each.cell.kind,
                "place": each.cell.place,
                "bytes_per_node": each.cell.message_bytes,
                "bytes_per_s": each.file_bytes_per_s,
            }
            for each in self.of_kind(WRITE, READ)
        ]
        return {
            "run_id": self.run_id,
            "tuning": self.tuning,
            "origin": dict(self.origin),
            "training": training,
            "allreduce": sums,
            "input": inputs,
            "storage": files,
        }


def _common(measurement: Measurement) -> dict[str, Any]:
    return {
        "nodes": measurement.cell.nodes,
        "ranks": measurement.ranks,
        "rounds_s": list(measurement.seconds),
        "median_s": measurement.median_s,
        "spread": measurement.spread,
    }


def read_bench(directory: Path) -> Bench:
    """Read the benchmark in the directory of a fetched run. Raises DeepcdkError where there is none."""
    path = directory / BENCH_FILE
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise DeepcdkError(
            f"{directory} holds no {BENCH_FILE} ({error.strerror})",
            remedy="give the run of a `fab bench` that has measured something; `fab runs` lists runs",
        ) from None
    rounds: dict[tuple[Cell, int], dict[int, float]] = {}
    origin: Mapping[str, Any] = {}
    for line in lines:
        try:
            event = answers.parse(line)
            if event["type"] == "origin":
                origin = event
            elif event["type"] == "cell":
                cell, ranks, seconds = _cell(event["cell"]), int(event["ranks"]), float(event["seconds"])
                if ranks > 0 and math.isfinite(seconds) and seconds > 0:
                    rounds.setdefault((cell, ranks), {})[int(event["round"])] = seconds
        except (ValueError, KeyError, TypeError):
            continue
    if not rounds:
        raise DeepcdkError(f"{path} holds no figure", remedy="`fab resume` goes on with a benchmark that was stopped")
    measurements = [
        Measurement(cell=cell, ranks=ranks, seconds=tuple(found[number] for number in sorted(found)))
        for (cell, ranks), found in sorted(rounds.items())
    ]
    return Bench(run_id=directory.resolve().name, measurements=tuple(measurements), origin=origin)


def _cell(values: Mapping[str, Any]) -> Cell:
    """Return a cell. Raises TypeError or ValueError for what is none."""
    cell = Cell(**values)
    if cell.kind not in KINDS or not isinstance(cell.network, str):
        raise ValueError(cell.kind)
    if cell.place not in (*PLACES, "") or bool(cell.place) != (cell.kind in (WRITE, READ)):
        raise ValueError(cell.place)
    if cell.precision not in NUMBER_FORMATS:
        raise ValueError(cell.precision)
    numbers = (cell.nodes, cell.batch_per_rank, cell.image_size, cell.message_bytes)
    if not all(type(value) is int and 0 <= value <= 1 << 40 for value in numbers):
        raise TypeError("no whole numbers")
    return cell
