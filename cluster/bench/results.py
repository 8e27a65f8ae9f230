"""The results of a benchmark: tables, JSON and a picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from agent.files.atomic_write import replace_file
from cluster.bench.measurements import Bench, Measurement
from cluster.errors import DeepcdkError
from cluster.plots.bench import draw_bench
from cluster.plots.style import save
from cluster.terminal.tables import Table
from payload.settings.bench import ALLREDUCE, INPUT, READ, TRAINING, WRITE

JSON_FILE: Final = "bench.json"
PICTURE: Final = "bench.png"
Column = Callable[[Bench, Measurement], str]
_TABLES: Final[dict[str, tuple[tuple[str, ...], dict[str, Column]]]] = {
    "training": (
        (TRAINING,),
        {
            "network": lambda _, m: m.cell.program,
            "batch": lambda _, m: f"{m.cell.batch_per_rank}",
            "nodes": lambda _, m: f"{m.cell.nodes}",
            "ranks": lambda _, m: f"{m.ranks}",
            "images/s": lambda _, m: f"{m.images_per_s:,.4g}" if m.images_per_s < 1000 else f"{m.images_per_s:,.0f}",
            "efficiency": lambda bench, m: f"{bench.efficiency(m):.1%}",
            "step": lambda _, m: f"{m.median_s * 1e3:.4g} ms",
        },
    ),
    "allreduce": (
        (ALLREDUCE,),
        {
            "bytes": lambda _, m: f"{m.cell.message_bytes:,}",
            "nodes": lambda _, m: f"{m.cell.nodes}",
            "ranks": lambda _, m: f"{m.ranks}",
            "time us": lambda _, m: f"{m.median_s * 1e6:,.0f}",
            "algbw GB/s": lambda _, m: f"{m.algorithm_bytes_per_s / 1e9:.3f}",
            "busbw GB/s": lambda _, m: f"{m.bus_bytes_per_s / 1e9:.3f}",
        },
    ),
    "input pipeline": (
        (INPUT,),
        {
            "pixels": lambda _, m: f"{m.cell.image_size}",
            "nodes": lambda _, m: f"{m.cell.nodes}",
            "ranks": lambda _, m: f"{m.ranks}",
            "images/s": lambda _, m: f"{m.images_per_s:,.0f}",
            "per rank": lambda _, m: f"{m.images_per_s / m.ranks:,.0f}",
        },
    ),
    "storage": (
        (WRITE, READ),
        {
            "files": lambda _, m: m.cell.place,
            "": lambda _, m: m.cell.kind,
            "nodes": lambda _, m: f"{m.cell.nodes}",
            "MiB per node": lambda _, m: f"{m.cell.message_bytes >> 20:,}",
            "MB/s": lambda _, m: f"{m.file_bytes_per_s / 1e6:,.0f}",
            "per node": lambda _, m: f"{m.file_bytes_per_s / m.cell.nodes / 1e6:,.0f}",
        },
    ),
}
"""By title: the kinds of cells, and the columns."""


def tables(bench: Bench) -> Iterator[Table]:
    """Yield a table for each kind of measurement in the benchmark: training, allreduce, input pipeline, storage.

    Kinds without measurements are left out.
    """
    for title, (kinds, columns) in _TABLES.items():
        rows = tuple(
            (*(cell(bench, each) for cell in columns.values()), f"{each.spread:.1%}") for each in bench.of_kind(*kinds)
        )
        if rows:
            title = f"{title}, benchmark {bench.run_id}"
            yield Table(title=title, columns=(*columns, "spread"), rows=rows, expendable=("ranks",))


def document(bench: Bench) -> dict[str, Any]:
    """Return a benchmark as JSON values: run_id, tuning, origin, and lists training, allreduce, input and storage."""

    def rows(figures: Callable[[Measurement], dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
        return [
            {
                "nodes": each.cell.nodes,
                "ranks": each.ranks,
                "rounds_s": list(each.seconds),
                "median_s": each.median_s,
                "spread": each.spread,
                **figures(each),
            }
            for each in bench.of_kind(*kinds)
        ]

    def training(each: Measurement) -> dict[str, Any]:
        names = ("network", "precision", "batch_per_rank", "image_size")
        figures = {"images_per_s": each.images_per_s, "efficiency": bench.efficiency(each)}
        return {name: getattr(each.cell, name) for name in names} | figures

    def allreduce(each: Measurement) -> dict[str, Any]:
        rates = {name: getattr(each, name) for name in ("algorithm_bytes_per_s", "bus_bytes_per_s")}
        return {"message_bytes": each.cell.message_bytes, **rates}

    def images(each: Measurement) -> dict[str, Any]:
        return {"image_size": each.cell.image_size, "images_per_s": each.images_per_s}

    def storage(each: Measurement) -> dict[str, Any]:
        cell = {"operation": each.cell.kind, "place": each.cell.place, "bytes_per_node": each.cell.message_bytes}
        return {**cell, "bytes_per_s": each.file_bytes_per_s}

    return {
        "run_id": bench.run_id,
        "tuning": bench.tuning,
        "origin": dict(bench.origin),
        "training": rows(training, TRAINING),
        "allreduce": rows(allreduce, ALLREDUCE),
        "input": rows(images, INPUT),
        "storage": rows(storage, WRITE, READ),
    }


def write_results(directory: Path, bench: Bench) -> tuple[Path, Path]:
    """Write bench.json and bench.png into the directory, and return their paths. Raises DeepcdkError."""
    path, picture = directory / JSON_FILE, directory / PICTURE
    try:
        replace_file(path, (json.dumps(document(bench), indent=2) + "\n").encode())
    except OSError as error:
        raise DeepcdkError(
            f"cannot write {path} ({error.strerror})", remedy="free space there, or make the path writable"
        ) from None
    save(draw_bench(bench), picture)
    return path, picture
