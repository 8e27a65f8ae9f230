"""Benchmarks written by hand in the format that the ranks write."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.bench.measurements import Bench, read_bench
from payload.settings.bench import ALLREDUCE, BENCH_FILE, INPUT, READ, SHARED, TRAINING, WRITE, Cell


def event(kind: str, nodes: int, seconds: Sequence[float], *, message_bytes: int = 1 << 20) -> list[dict[str, Any]]:
    """Return the lines of one cell, one round per time."""
    cell = Cell(kind=kind, network="lenet", batch_per_rank=32, nodes=nodes)
    if kind == ALLREDUCE:
        cell = Cell(kind=kind, message_bytes=message_bytes, nodes=nodes)
    if kind == INPUT:
        cell = Cell(kind=kind, batch_per_rank=256, image_size=224, nodes=nodes)
    if kind in (WRITE, READ):
        cell = Cell(kind=kind, message_bytes=message_bytes, place=SHARED, nodes=nodes)
    values = dataclasses.asdict(cell)
    return [
        {"type": "cell", "round": number, "cell": values, "ranks": nodes, "seconds": each}
        for number, each in enumerate(seconds)
    ]


def written(
    directory: Path, events: Sequence[Sequence[dict[str, Any]]], name: str = "bench", arguments: Sequence[str] = ()
) -> Path:
    """Write the lines as a run's directory; return it. `arguments`: the arguments of the ranks."""
    (directory / name).mkdir()
    origin = {"type": "origin", **({"arguments": list(arguments)} if arguments else {})}
    lines = [json.dumps(line) for lines in ([origin], *events) for line in lines]
    (directory / name / BENCH_FILE).write_text("".join(f"{line}\n" for line in lines))
    return directory / name


def feeding(directory: Path) -> Bench:
    """Return a benchmark of the input pipeline and of files on the shared file system, on 1 and 2 nodes."""
    times = {(INPUT, 1): 0.5, (INPUT, 2): 0.5, (WRITE, 1): 0.1, (WRITE, 2): 0.16, (READ, 1): 0.05, (READ, 2): 0.05}
    return read_bench(written(directory, [event(kind, nodes, [s, s, 1.1 * s]) for (kind, nodes), s in times.items()]))


def scaling(
    directory: Path, name: str = "bench", factor: float = 1.0, noise: float = 0.02, arguments: Sequence[str] = ()
) -> Bench:
    """Return a benchmark of one network and one size on 1, 2 and 4 nodes, `factor` times as slow."""
    rounds = (1 - noise, 1.0, 1 + noise)
    times = {(TRAINING, 1): 0.1, (TRAINING, 2): 0.11, (TRAINING, 4): 0.13, (ALLREDUCE, 2): 0.01, (ALLREDUCE, 4): 0.02}
    events = [event(kind, nodes, [each * factor * s for each in rounds]) for (kind, nodes), s in times.items()]
    return read_bench(written(directory, events, name, arguments))
