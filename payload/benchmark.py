"""Measure images a second, networks by batch sizes: `python -m payload.benchmark --networks vgg16 --batch-sizes 1,32`.

The tables of "AWS Works with Intel to Enable Optimized Deep Learning Frameworks" (2018): synthetic images, one training
step with RMSprop, each cell in a fresh process. Exit status: 0 all measured; 1 a cell failed, which the table names;
2 wrong arguments; 130 interrupted, after the table of what was measured.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from payload.benchmark_config import BenchmarkConfig, Cell
from payload.benchmark_table import CellOutputError, CellResult, Figures, describe, document, table
from payload.durable import replace_file
from payload.errors import PayloadError
from payload.machine import Machine, this_machine

ONEDNN: Final = "TF_ENABLE_ONEDNN_OPTS"
LOG_LEVEL: Final = "TF_CPP_MIN_LOG_LEVEL"
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
ROOT: Final = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """Measure every cell, print the table and return the exit status."""
    try:
        config = BenchmarkConfig.from_argv(argv)
    except PayloadError as error:
        return _fail(error, EXIT_USAGE)
    machine = this_machine()
    print(f"{config.mode} on {machine}", flush=True)
    results: list[CellResult] = []
    try:
        _measure(config, machine, results)
    except PayloadError as error:
        return _fail(error, EXIT_FAILED)
    except KeyboardInterrupt:
        print(table(results), flush=True)
        return EXIT_INTERRUPTED
    print(table(results), flush=True)
    return EXIT_FAILED if any(result.failure for result in results) else 0


def _measure(config: BenchmarkConfig, machine: Machine, results: list[CellResult]) -> None:
    """Fill `results` cell by cell, and write them out after each. Raises StorageError."""
    cells = config.cells()
    for number, cell in enumerate(cells, start=1):
        result = run_cell(cell, os.environ, config.cell_timeout_s)
        results.append(result)
        if config.json_path:
            replace_file(config.json_path, document(machine, results).encode())
        rate = result.failure or f"{result.images_per_s:.4g} images/s"
        print(f"{number} of {len(cells)}: {describe(cell)}: {rate}", file=sys.stderr, flush=True)


def run_cell(cell: Cell, environ: Mapping[str, str], timeout_s: float) -> CellResult:
    """Measure one cell in a process of its own; a failure is a result, so that the other cells are measured."""
    try:
        done = subprocess.run(
            cell_command(cell),
            env=cell_environment(cell, environ),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return CellResult(cell=cell, failure=f"not done after {timeout_s:g} s; give fewer --steps")
    if done.returncode:
        return CellResult(cell=cell, failure=failure_reason(done.returncode, done.stderr))
    try:
        return CellResult(cell=cell, figures=Figures.from_output(done.stdout))
    except CellOutputError as error:
        return CellResult(cell=cell, failure=str(error))


def cell_command(cell: Cell) -> list[str]:
    """Return the command that measures a cell."""
    return [sys.executable, "-m", "payload.benchmark_cell", json.dumps(dataclasses.asdict(cell))]


def cell_environment(cell: Cell, environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` with TensorFlow's own default for oneDNN, or with oneDNN off, and its greetings silenced."""
    kept = {name: value for name, value in environ.items() if name != ONEDNN}
    return {LOG_LEVEL: "2", **kept} if cell.onednn else {LOG_LEVEL: "2", **kept, ONEDNN: "0"}


def failure_reason(status: int, stderr: str) -> str:
    """Say why a cell's process ended: the signal, or the last line that it wrote."""
    if status == -signal.SIGKILL:
        return "killed; most likely out of memory: give smaller --batch-sizes"
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return f"exit status {status}: {lines[-1][:300] if lines else 'no message'}"


def _fail(error: PayloadError, status: int) -> int:
    print(f"payload.benchmark: error: {error}", file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
