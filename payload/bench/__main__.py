"""Measure images per second by network and batch size: `python -m payload.bench --networks vgg16 --batch-sizes 1,32`.

This reproduces the tables of "AWS Works with Intel to Enable Optimized Deep Learning Frameworks" (2018): synthetic
images, a training step with RMSprop, and a new process for each cell. Exit status: 0: all measured; 1: a cell failed
(see the table); 2: invalid arguments; 130: interrupted, after printing the table so far.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.errors import ReportedError
from agent.files.atomic_write import replace_file
from agent.hardware.machine import this_machine
from agent.hardware.placement import OMP_THREADS, ONEDNN
from payload.bench.network_cell import ONEDNN_OFF, STOCK, TUNED, Cell
from payload.model_arguments import EXIT_FAILED, EXIT_USAGE, report_error
from payload.models.registry import network
from payload.settings.parser import SettingsParser
from payload.settings.training import NETWORKS
from payload.settings.validation import check_fields, setting

COMMAND: Final = "payload.bench"
EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
LOG_LEVEL: Final = "TF_CPP_MIN_LOG_LEVEL"
ROOT: Final = Path(__file__).resolve().parents[2]
COMPARED: Final = {STOCK: ("stock", "cores stock", "ratio"), ONEDNN_OFF: ("oneDNN off", "cores off", "ratio")}
"""Table columns of the other variants, in addition to the tuned one's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkSettings:
    """The cells to measure, and the number of steps in each."""

    networks: tuple[str, ...] = setting(
        ("alexnet", "googlenet", "inception-v3", "resnet50", "resnet152", "vgg16"),
        "networks to measure",
        choices=NETWORKS,
    )
    batch_sizes: tuple[int, ...] = setting((1, 32, 64, 96, 128), "images per step", low=1, high=1 << 16)
    image_size: int = setting(
        0, "size of the square images, pixels; 0: as in each network's publication", low=0, high=1 << 13
    )
    mode: str = setting("training", "work of a step", choices=("training", "inference"))
    steps: int = setting(10, "number of measured steps; the result is their median", low=1, high=1_000_000)
    warmup_steps: int = setting(
        2, "number of steps before the measurement; the first step compiles the graph", low=1, high=1_000_000
    )
    compare_onednn: bool = setting(False, "also measure each cell with TF_ENABLE_ONEDNN_OPTS=0")
    compare_tuned: bool = setting(False, "also measure each cell with TensorFlow's default settings")
    intra_op_threads: int = setting(0, "threads per operation; 0: one for each physical core", low=0, high=1024)
    inter_op_threads: int = setting(0, "concurrent operations; 0: from the network's branches", low=0, high=1024)
    cell_timeout_s: float = setting(1800.0, "time limit for a cell, seconds", low=1, high=1e6)
    json: str = setting("", "file for the measurements, written after each cell")

    def __post_init__(self) -> None:
        check_fields(self)
        for name in self.networks:
            known = network(name)
            known.require_size(self.image_size or known.image_size, self.image_size or known.image_size)

    def cells(self) -> list[Cell]:
        """Return the cells in the order of measurement: by network, batch size and variant, with TUNED first.

        A network or batch size that is given twice counts once.
        """
        variants = [TUNED, *([STOCK] if self.compare_tuned else []), *([ONEDNN_OFF] if self.compare_onednn else [])]
        return [
            Cell(
                network=name,
                batch_size=batch_size,
                image_size=self.image_size or network(name).image_size,
                mode=self.mode,
                variant=variant,
                steps=self.steps,
                warmup_steps=self.warmup_steps,
                intra_op_threads=self.intra_op_threads,
                inter_op_threads=self.inter_op_threads,
            )
            for name in dict.fromkeys(self.networks)
            for batch_size in dict.fromkeys(self.batch_sizes)
            for variant in variants
        ]


Figures = Mapping[str, Any]
"""A cell with its `images_per_s` and the values printed by its process, or with its `failure`."""


def parse(argv: Sequence[str]) -> BenchmarkSettings:
    """Parse the command line. Raises SettingError, or ImageShapeError if a network does not support the image size."""
    parser = SettingsParser(
        prog="python -m payload.bench",
        description="Measure the images per second of networks on synthetic images, each cell in a new process.",
        epilog=f"Networks: {', '.join(NETWORKS)}.",
        allow_abbrev=False,
    )
    parser.add_settings(BenchmarkSettings)
    return BenchmarkSettings(**parser.given(argv))


def run_cell(cell: Cell, environ: Mapping[str, str], timeout_s: float) -> Figures:
    """Measure one cell in a new process, wait for it, and return its figures.

    If the process fails, exceeds `timeout_s` seconds or prints no valid result, the figures contain the reason as
    `failure`, and `images_per_s` is None. No error is raised, so that the other cells are still measured.
    """
    command = [sys.executable, "-m", "payload.bench.network_cell", json.dumps(dataclasses.asdict(cell))]
    found: dict[str, Any] = {**dataclasses.asdict(cell), "images_per_s": None}
    try:
        done = subprocess.run(
            command,
            env=cell_environment(cell, environ),
            cwd=ROOT,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return {**found, "failure": f"timed out after {timeout_s:g} s; use fewer --steps, or a larger --cell-timeout-s"}
    if done.returncode:
        return {**found, "failure": _failure(done.returncode, done.stderr)}
    try:
        printed = json.loads(done.stdout.rstrip().splitlines()[-1])
        return {**found, **printed, "images_per_s": cell.batch_size / statistics.median(printed["step_seconds"])}
    except (IndexError, KeyError, TypeError, ValueError):
        return {**found, "failure": f"its process printed no valid result, but: {done.stdout[-200:]!a}"}


def cell_environment(cell: Cell, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a cell's process: `environ` without the variables that tune TensorFlow.

    TensorFlow logs only errors unless `environ` sets its log level. oneDNN is off if the cell's variant is ONEDNN_OFF.
    """
    kept = {name: value for name, value in environ.items() if name not in (ONEDNN, OMP_THREADS)}
    return {LOG_LEVEL: "2", **kept} | ({ONEDNN: "0"} if cell.variant == ONEDNN_OFF else {})


def _failure(status: int, stderr: str) -> str:
    if status == -signal.SIGKILL:
        return "killed, probably because it ran out of memory; use smaller --batch-sizes"
    if status < 0:
        return f"terminated by {signal.Signals(-status).name}"
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return f"exit status {status}: {lines[-1][:300] if lines else 'no message'}"


def table(results: Sequence[Figures]) -> str:
    """Format the results as a table with a row for each TUNED cell, followed by the reasons of failed cells.

    Each other variant that was measured adds three columns: its images/s, its cores, and the ratio of TUNED's images/s
    to its images/s.
    """
    found = {(each["variant"], each["network"], each["batch_size"]): each for each in results}
    variants = [variant for variant in COMPARED if any(key[0] == variant for key in found)]
    rows = [["network", "batch", "pixels", "images/s", "step ms", "spread", "cores", "MiB"]]
    rows[0] += [heading for variant in variants for heading in COMPARED[variant]]
    for (variant, *place), each in found.items():
        if variant == TUNED:
            beside = [_comparison(each, found.get((other, *place))) for other in variants]
            rows.append([*_row(each), *(text for texts in beside for text in texts)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([name.ljust(widths[0]), *(text.rjust(width) for text, width in zip(rest, widths[1:], strict=True))])
        for name, *rest in rows
    ]
    failures = [f"{describe(each)}: {each['failure']}" for each in results if "failure" in each]
    return "\n".join([*(line.rstrip() for line in lines), *failures])


def describe(figures: Figures) -> str:
    """Return a cell's name for messages, such as `vgg16, batch 32`, with the variant unless it is TUNED."""
    variant = COMPARED.get(figures["variant"])
    return f"{figures['network']}, batch {figures['batch_size']}{f', {variant[0]}' if variant else ''}"


def _row(figures: Figures) -> list[str]:
    start = [figures["network"], str(figures["batch_size"]), str(figures["image_size"])]
    if "failure" in figures:
        return [*start, "failed", "-", "-", "-", "-"]
    seconds = figures["step_seconds"]
    median = statistics.median(seconds)
    return [
        *start,
        _rate(figures["images_per_s"]),
        f"{median * 1000:.1f}",
        f"{(max(seconds) - min(seconds)) / median:.0%}",
        f"{figures['cores_used']:.2f}",
        f"{figures['peak_memory_mib']:.0f}",
    ]


def _comparison(figures: Figures, other: Figures | None) -> list[str]:
    if other is None:
        return ["-", "-", "-"]
    if "failure" in other:
        return ["failed", "-", "-"]
    ratio = "-" if "failure" in figures else f"{figures['images_per_s'] / other['images_per_s']:.2f}"
    return [_rate(other["images_per_s"]), f"{other['cores_used']:.2f}", ratio]


def _rate(images_per_s: float) -> str:
    """Format a rate as a whole number from 100 up, and with three significant digits below."""
    return f"{images_per_s:.0f}" if images_per_s >= 100 else f"{images_per_s:.3g}"


def main(argv: Sequence[str]) -> int:
    """Measure every cell, print the table, and with --json also write the measurements; return the exit status.

    The status is EXIT_FAILED if a cell failed, EXIT_USAGE for an invalid command line, and EXIT_INTERRUPTED after
    Ctrl-C. If the --json file cannot be written, the measurement stops, and the status is EXIT_FAILED. In both cases,
    the table has the cells measured so far.
    """
    try:
        settings = parse(argv)
    except ReportedError as error:
        return report_error(COMMAND, error, EXIT_USAGE)
    machine = this_machine()
    print(f"{settings.mode} on {machine}", flush=True)
    results: list[Figures] = []
    try:
        cells = settings.cells()
        for number, cell in enumerate(cells, start=1):
            results.append(run_cell(cell, os.environ, settings.cell_timeout_s))
            if settings.json:
                document = {"machine": dataclasses.asdict(machine), "cells": results}
                replace_file(Path(settings.json), json.dumps(document, indent=1).encode() + b"\n")
            last = results[-1]
            rate = last.get("failure") or f"{last['images_per_s']:.4g} images/s"
            print(f"{number} of {len(cells)}: {describe(last)}: {rate}", file=sys.stderr, flush=True)
    except ReportedError as error:
        print(table(results), flush=True)
        return report_error(COMMAND, error, EXIT_FAILED)
    except KeyboardInterrupt:
        print(table(results), flush=True)
        return EXIT_INTERRUPTED
    print(table(results), flush=True)
    return EXIT_FAILED if any("failure" in each for each in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
