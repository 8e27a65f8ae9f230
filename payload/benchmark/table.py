"""What the benchmark measured, as values, as JSON and as a table. Pure; standard library only."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Sequence
from typing import Any, Final

from agent.errors import ReportedError
from agent.hardware.machine import Machine
from payload.benchmark.config import Cell, Variant

HEADINGS = ("network", "batch", "pixels", "images/s", "step ms", "spread", "cores", "MiB")
COMPARED: Final[dict[Variant, tuple[str, str, str]]] = {
    "stock": ("stock", "cores stock", "ratio"),
    "onednn-off": ("oneDNN off", "cores off", "ratio"),
}
"""Columns beside a cell for each other variant that was measured."""


class CellOutputError(ReportedError, ValueError):
    """Report a cell whose process ended well without figures. Carries its `output`."""

    def __init__(self, output: str) -> None:
        self.output = output
        super().__init__(f"the cell's process printed no figures but {output[-200:]!r}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """What one cell's process measured."""

    step_seconds: tuple[float, ...]
    first_step_seconds: float
    """Of the first step, which compiles the graph."""
    cores_used: float
    """Processor time over wall time while measuring: less than the threads where other work took the cores."""
    peak_memory_mib: float
    parameters: int
    chosen: str
    """Placement and settings, in words."""
    tensorflow: str
    keras: str

    @property
    def median_seconds(self) -> float:
        """Return the time of a step."""
        return statistics.median(self.step_seconds)

    @property
    def spread(self) -> float:
        """Return the distance of the slowest and the fastest step, as a part of the median."""
        return (max(self.step_seconds) - min(self.step_seconds)) / self.median_seconds

    @classmethod
    def from_output(cls, output: str) -> Figures:
        """Read the last line that the cell's process printed. Raises CellOutputError."""
        try:
            values = json.loads(output.rstrip().splitlines()[-1])
            return cls(**{**values, "step_seconds": tuple(values["step_seconds"])})
        except (IndexError, KeyError, TypeError, ValueError):
            raise CellOutputError(output) from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellResult:
    """A cell and its figures, or the reason why there are none."""

    cell: Cell
    figures: Figures | None = None
    failure: str | None = None

    @property
    def images_per_s(self) -> float | None:
        """Return images a second by the median step, None for a cell that failed."""
        return self.cell.batch_size / self.figures.median_seconds if self.figures else None

    def to_json(self) -> dict[str, Any]:
        """Return the cell, its figures and its images a second as values for JSON."""
        figures = dataclasses.asdict(self.figures) if self.figures else {"failure": self.failure}
        return {**dataclasses.asdict(self.cell), "images_per_s": self.images_per_s, **figures}


def document(machine: Machine, results: Sequence[CellResult]) -> str:
    """Return all that was measured as JSON."""
    cells = [result.to_json() for result in results]
    return json.dumps({"machine": dataclasses.asdict(machine), "cells": cells}, indent=1) + "\n"


def table(results: Sequence[CellResult]) -> str:
    """Return a table: a line for each network and batch size, other variants and the ratio to them beside."""
    others = {_place(result.cell): result for result in results if result.cell.variant != "tuned"}
    variants = [variant for variant in COMPARED if any(place[0] == variant for place in others)]
    rows = [[*HEADINGS, *(heading for variant in variants for heading in COMPARED[variant])]]
    for result in results:
        if result.cell.variant == "tuned":
            beside = [others.get((variant, *_place(result.cell)[1:])) for variant in variants]
            rows.append([*_row(result), *(text for other in beside for text in _comparison(result, other))])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(text.ljust(width) if column == 0 else text.rjust(width) for column, (text, width) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in rows)
    ]
    failures = [f"{describe(result.cell)}: {result.failure}" for result in results if result.failure]
    return "\n".join([line.rstrip() for line in lines] + failures)


def describe(cell: Cell) -> str:
    """Return the name of a cell in a line of progress."""
    variant = "" if cell.variant == "tuned" else f", {COMPARED[cell.variant][0]}"
    return f"{cell.network}, batch {cell.batch_size}{variant}"


def _place(cell: Cell) -> tuple[Variant, str, int]:
    return (cell.variant, cell.network, cell.batch_size)


def _row(result: CellResult) -> list[str]:
    cell, figures = result.cell, result.figures
    start = [cell.network, str(cell.batch_size), str(cell.image_size)]
    if figures is None:
        return [*start, "failed", "-", "-", "-", "-"]
    return [
        *start,
        _rate(result.images_per_s),
        f"{figures.median_seconds * 1000:.1f}",
        f"{figures.spread:.0%}",
        f"{figures.cores_used:.2f}",
        f"{figures.peak_memory_mib:.0f}",
    ]


def _comparison(result: CellResult, other: CellResult | None) -> list[str]:
    if other is None:
        return ["-", "-", "-"]
    if other.figures is None:
        return ["failed", "-", "-"]
    ratio = f"{other.figures.median_seconds / result.figures.median_seconds:.2f}" if result.figures else "-"
    return [_rate(other.images_per_s), f"{other.figures.cores_used:.2f}", ratio]


def _rate(images_per_s: float | None) -> str:
    """Return a rate with three or more significant digits."""
    if images_per_s is None:
        return "failed"
    return f"{images_per_s:.0f}" if images_per_s >= 100 else f"{images_per_s:.3g}"
