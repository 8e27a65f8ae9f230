"""The imports at the start of a run: every node reads each module, and the first step waits for the slowest node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
LOADED = "import sys, {module}; print(*sorted(sys.modules))"


@pytest.mark.parametrize(
    ("module", "unneeded"),
    [
        # Takes over the run from the laptop and leaves the supervisor running.
        ("agent.supervisor.cli", {"agent.supervisor.supervisor", "agent.supervisor.submit", "agent.preflight"}),
        # Runs on each node before the pre-flight check.
        (
            "agent.supervisor.prepare_node",
            {"agent.runs", "agent.launch.program_placement", "agent.preflight.node_checks"},
        ),
        # Becomes each rank.
        (
            "agent.launch.rank",
            {"agent.runs", "agent.launch.program_placement", "agent.hardware.topology", "http.client"},
        ),
    ],
)
def test_start_imports_nothing_unused_by_most_runs(module: str, unneeded: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", LOADED.format(module=module)],
        cwd=PROJECT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    loaded = done.stdout.split()
    assert module in loaded
    assert not unneeded.intersection(loaded)
