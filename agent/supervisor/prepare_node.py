"""Prepare one node for a run's ranks: nothing left of other runs, the runtime, the program's own packages.

    NODE_PYTHON -m agent.supervisor.prepare_node RUN_DIRECTORY     # the last line: the Python of the ranks

One process does it all, and prints the node's facts before the last line: each further process would take time, and
the run waits for the slowest node.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agent.environment.overlay import Overlay, OverlayBuilder
from agent.hardware.gpus import count_gpu_devices
from agent.launch.rank import this_host
from agent.preflight.checks import facts_command
from agent.remote.processes import signal_run
from agent.remote.secret_files import TAKEN
from agent.spec.nodes import NODE_PYTHON, Node
from agent.spec.run import RunSpec

CLEARING_S: Final = 10.0
"""How long what a crash left of another run may take to go."""


class NodeError(RuntimeError):
    """Report a node that cannot take its ranks."""


def command(spec: RunSpec) -> list[str]:
    """Build the command that prepares a node for a run; it runs in the agent's tree."""
    return [NODE_PYTHON, "-m", "agent.supervisor.prepare_node", spec.run_directory]


def clear(spec: RunSpec, home: Path) -> None:
    """Remove what a crash left of other runs: secrets and processes. Raises NodeError where a process stays."""
    shutil.rmtree(home / TAKEN, ignore_errors=True)
    left = signal_run(
        spec.runs_root,
        run_id=spec.run_id,
        others=True,
        ranks_only=False,
        number=signal.SIGKILL,
        wait_s=CLEARING_S,
    )["left"]
    if left:
        raise NodeError(f"processes of another run stay: {', '.join(map(str, left))}")


def overlay_of(spec: RunSpec, runtime: Path, home: Path) -> Overlay | None:
    """Return the overlay that a run's program needs over the runtime; None where the runtime is enough."""
    if not spec.needs_overlay:
        return None
    return Overlay(
        runtime=runtime,
        program=Path(spec.program_directory),
        requirements=spec.requirements,
        further=spec.further_requirements,
        root=home / ".cache" / "deepcdk" / "layers",
        wheelhouse=Path(spec.efs_mount) / "payloads" / ".wheelhouse",
    )


def check_slots(host: Node, *, gpus: int, cores: int) -> None:
    """Raise NodeError where a node is to take more ranks than it has GPUs or, without GPUs, cores."""
    have, what = (gpus, "GPUs") if gpus else (cores, "cores")
    if host.slots > have:
        raise NodeError(f"{host.slots} ranks are asked of {host.name}, which has {have} {what}")


def make_python(spec: RunSpec, runtime: Path) -> Path:
    """Return the ranks' Python, having made the overlay that they need. Raises NodeError or OverlayError."""
    if spec.ranks_per_node and (host := this_host(spec)) is not None:
        check_slots(host, gpus=count_gpu_devices(), cores=len(os.sched_getaffinity(0)))
    overlay = overlay_of(spec, runtime, Path.home())
    if overlay is None:
        return runtime
    return OverlayBuilder(overlay=overlay, report=lambda line: print(line, file=sys.stderr, flush=True)).ensure()


def print_facts(spec: RunSpec, python: Path, began: float) -> None:
    """Have the ranks' Python print this node's facts; where it cannot, the pre-flight asks for them again."""
    if spec.preflight != "skip" and this_host(spec) is not None:
        subprocess.run([*facts_command(str(python), spec), repr(began)], stdin=subprocess.DEVNULL, check=False)


def main(argv: Sequence[str]) -> int:
    """Prepare this node; return the exit status."""
    from agent.environment import (
        runtime,  # Not at the top: the supervisor imports this module, and is pushed without that one.
    )

    began, directory = time.time(), Path(argv[0])
    try:
        spec = RunSpec.from_json((directory / "spec.json").read_text(encoding="utf-8"))
        clear(spec, Path.home())
        made = runtime.ensure("--wheelhouse", f"{spec.efs_mount}/payloads/.wheelhouse")
        python = make_python(spec, made)
        print_facts(spec, python, began)
        print(python, flush=True)
    except (RuntimeError, ValueError, OSError) as error:  # each error of the modules here is one of these
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
