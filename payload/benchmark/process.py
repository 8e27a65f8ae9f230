"""Measure a cell of the benchmark in a process of its own, and the reason where it failed. Standard library only."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent.hardware.threads import OMP_THREADS, ONEDNN
from payload.benchmark.config import Cell
from payload.benchmark.table import CellOutputError, CellResult, Figures

LOG_LEVEL: Final = "TF_CPP_MIN_LOG_LEVEL"
ROOT: Final = Path(__file__).resolve().parents[2]


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
    return [sys.executable, "-m", "payload.benchmark.cell", json.dumps(dataclasses.asdict(cell))]


def cell_environment(cell: Cell, environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` without what tunes TensorFlow, or with oneDNN off, and its greetings silenced."""
    kept = {name: value for name, value in environ.items() if name not in (ONEDNN, OMP_THREADS)}
    return {LOG_LEVEL: "2", **kept} | ({ONEDNN: "0"} if cell.variant == "onednn-off" else {})


def failure_reason(status: int, stderr: str) -> str:
    """Return why a cell's process ended: the signal, or the last line that it wrote."""
    if status == -signal.SIGKILL:
        return "killed; most likely out of memory: give smaller --batch-sizes"
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return f"exit status {status}: {lines[-1][:300] if lines else 'no message'}"
