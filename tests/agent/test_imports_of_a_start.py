"""Facts about what a run's start imports: every node reads each module, and the first step waits for the slowest."""

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
        # Takes the run over from the laptop and leaves the supervisor behind.
        ("agent.supervisor.cli", {"agent.supervisor.supervisor", "agent.supervisor.submit", "agent.preflight"}),
        # On each node, before the pre-flight.
        (
            "agent.supervisor.prepare_node",
            {"agent.runs", "agent.launch.program_setup", "agent.preflight.checks"},
        ),
        # Turns into each rank.
        ("agent.launch.rank", {"agent.runs", "agent.launch.program_setup", "agent.hardware.topology", "http.client"}),
    ],
)
def test_a_start_imports_nothing_that_most_runs_do_without(module: str, unneeded: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", LOADED.format(module=module)],
        cwd=PROJECT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    loaded = done.stdout.split()
    assert module in loaded
    assert not unneeded.intersection(loaded)
