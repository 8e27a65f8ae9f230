"""What a benchmark of a cluster has measured, on disk: a line of JSON each, after which a resumed one goes on."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from payload.settings.bench import BENCH_FILE, Cell


def measured(run_dir: Path) -> set[tuple[int, Cell]]:
    """Return the rounds and cells that are measured already; a line cut off by a crash counts for nothing."""
    found = set()
    try:
        lines = (run_dir / BENCH_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return set()
    for line in lines:
        try:
            event = json.loads(line)
            if event["type"] == "cell":
                found.add((int(event["round"]), Cell(**event["cell"])))
        except (ValueError, KeyError, TypeError):
            continue
    return found


def append(run_dir: Path, event: Mapping[str, Any]) -> None:
    """Add a line, and have it on the disk. Begins another one where the last was cut off."""
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / BENCH_FILE).open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(event).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def append_cell(run_dir: Path, number: int, cell: Cell, *, ranks: int, seconds: float) -> None:
    """Add what a cell took in one round: the median step of its slowest rank, seconds."""
    event = {"type": "cell", "round": number, "cell": dataclasses.asdict(cell), "ranks": ranks, "seconds": seconds}
    append(run_dir, event)
