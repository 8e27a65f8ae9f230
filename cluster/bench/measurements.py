"""Read the measurements of a benchmark. The nodes wrote them, so invalid lines are left out."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent.files.safe_read import read_regular
from agent.spec.horovod import OWN_CYCLE_MS
from cluster import master_answers as answers
from cluster.errors import DeepcdkError
from payload.settings.bench import BENCH_FILE, CHOSEN, DEFAULTS, KINDS, PLACES, READ, TRAINING, WRITE, Cell
from payload.settings.training import NUMBER_FORMATS

MAX_BYTES: Final = 64 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
    """One cell over all rounds. Its rates are for all ranks, in the median round."""

    cell: Cell
    ranks: int
    seconds: tuple[float, ...]
    """For each round, the median step of the slowest rank."""

    @property
    def median_s(self) -> float:
        """Return the median time of the rounds, s."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Return the difference between the fastest and the slowest round, as a fraction of the median."""
        return (max(self.seconds) - min(self.seconds)) / self.median_s

    @property
    def images_per_s(self) -> float:
        """Return the images per second of all ranks."""
        return self.cell.batch_per_rank * self.ranks / self.median_s

    @property
    def algorithm_bytes_per_s(self) -> float:
        """Return the size of the tensor divided by the time, bytes/s: the algbw of nccl-tests."""
        return self.cell.message_bytes / self.median_s

    @property
    def bus_bytes_per_s(self) -> float:
        """Return the bandwidth that each rank's link used, the busbw of nccl-tests: 2(n-1)/n of algbw.

        A ring sends each byte of the sum and of the result n-1 times, in n parts at a time
        (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
        """
        return self.algorithm_bytes_per_s * 2 * (self.ranks - 1) / self.ranks

    @property
    def file_bytes_per_s(self) -> float:
        """Return the bytes per second that all nodes together wrote or read."""
        return self.cell.message_bytes * self.cell.nodes / self.median_s


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """The measurements of a benchmark."""

    run_id: str
    measurements: tuple[Measurement, ...]
    """In the order of their cells."""
    origin: Mapping[str, Any]
    """Machine, hosts, versions and arguments of the last attempt."""

    @property
    def tuning(self) -> str:
        """Return the tuning of the ranks, one of TUNINGS; CHOSEN unless the benchmark's arguments record DEFAULTS."""
        words = self.origin.get("arguments")
        known = isinstance(words, list) and "--tuning" in words[:-1] and words[words.index("--tuning") + 1] == DEFAULTS
        return DEFAULTS if known else CHOSEN

    @property
    def cycle_s(self) -> float | None:
        """Return Horovod's cycle time in seconds; None if the benchmark did not record its tuning.

        If the recorded tuning has no valid cycle time, return Horovod's default, OWN_CYCLE_MS.
        """
        tuning = self.origin.get("tuning")
        if not isinstance(tuning, Mapping):
            return None
        chosen = tuning.get("cycle_time_ms")
        return (chosen if isinstance(chosen, int | float) and 0 < chosen < math.inf else OWN_CYCLE_MS) / 1e3

    def of_kind(self, *kinds: str) -> tuple[Measurement, ...]:
        """Return the measurements of these kinds of cells, such as TRAINING."""
        return tuple(each for each in self.measurements if each.cell.kind in kinds)

    def efficiency(self, measurement: Measurement) -> float | None:
        """Return images/s per rank, as a fraction of those on the fewest nodes with the same network and batch.

        Returns 1 for the measurement on the fewest nodes, and None for a measurement that is not of training.
        """
        cell = measurement.cell
        if cell.kind != TRAINING:
            return None
        alike = [m for m in self.of_kind(TRAINING) if dataclasses.replace(m.cell, nodes=cell.nodes) == cell]
        base = min(alike, key=lambda each: each.ranks)
        return measurement.images_per_s / measurement.ranks / (base.images_per_s / base.ranks)


def read_bench(directory: Path) -> Bench:
    """Read the benchmark in the directory of a fetched run. Invalid lines of its file are skipped.

    Raises DeepcdkError if the file cannot be read or has no measurement.
    """
    path = directory / BENCH_FILE
    try:
        lines = read_regular(path, MAX_BYTES).decode("utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        raise DeepcdkError(
            f"{directory} has no {BENCH_FILE}, the file with a benchmark's measurements",
            remedy="give the id of a benchmark with measurements; `fab runs` lists the runs",
        ) from None
    except OSError as error:
        raise DeepcdkError(
            f"{path} cannot be read ({error.strerror})",
            remedy="make it a readable file, or delete it and fetch the run again with `fab fetch`",
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
        raise DeepcdkError(
            f"{path} has no measurement",
            remedy=f"if the benchmark was stopped, continue it with `fab resume {directory.resolve().name}`; otherwise "
            "give the id of another benchmark",
        )
    measurements = [
        Measurement(cell=cell, ranks=ranks, seconds=tuple(found[number] for number in sorted(found)))
        for (cell, ranks), found in sorted(rounds.items())
    ]
    return Bench(run_id=directory.resolve().name, measurements=tuple(measurements), origin=origin)


def _cell(values: Mapping[str, Any]) -> Cell:
    """Build a cell from the values in a line of the file. Raises TypeError or ValueError if they are invalid."""
    cell = Cell(**values)
    numbers = (cell.nodes, cell.batch_per_rank, cell.image_size, cell.message_bytes)
    is_valid = (
        cell.kind in KINDS
        and isinstance(cell.network, str)
        and cell.place in (*PLACES, "")
        and bool(cell.place) == (cell.kind in (WRITE, READ))
        and cell.precision in NUMBER_FORMATS
        and all(type(value) is int and 0 <= value <= 1 << 40 for value in numbers)
    )
    if not is_valid:
        raise ValueError(values)
    return cell
