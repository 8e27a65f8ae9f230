"""Measure images a second, networks by batch sizes: `python -m payload.benchmark --networks vgg16 --batch-sizes 1,32`.

The tables of "AWS Works with Intel to Enable Optimized Deep Learning Frameworks" (2018): synthetic images, one training
step with RMSprop, each cell in a fresh process. Exit status: 0 all measured; 1 a cell failed, which the table names;
2 wrong arguments; 130 interrupted, after the table of what was measured.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from agent.errors import ReportedError
from agent.files.atomic_write import replace_file
from agent.hardware.machine import Machine, this_machine
from payload.benchmark.config import BenchmarkConfig
from payload.benchmark.process import run_cell
from payload.benchmark.table import CellResult, describe, document, table

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 128 + signal.SIGINT


def main(argv: Sequence[str]) -> int:
    """Measure every cell, print the table and return the exit status."""
    try:
        config = BenchmarkConfig.from_argv(argv)
    except ReportedError as error:
        return _fail(error, EXIT_USAGE)
    machine = this_machine()
    print(f"{config.mode} on {machine}", flush=True)
    results: list[CellResult] = []
    try:
        _measure(config, machine, results)
    except ReportedError as error:
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


def _fail(error: ReportedError, status: int) -> int:
    print(f"payload.benchmark: error: {error}", file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
