"""End what is left of a run whose supervisor is gone, and store that the run has failed."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

from agent.remote import processes
from agent.remote.command import execute, remote_command
from agent.runs import spending
from agent.runs.directory import RunDirectory
from agent.runs.process_identity import ProcessIdentity
from agent.runs.store import Runs
from agent.spec.nodes import NODE_PYTHON
from agent.spec.run import RunSpec

TREE: Final = Path(__file__).resolve().parents[2]
"""The pushed tree of this process. It can also end a run of an older version, whose spec names no agent."""


def take_lock(runs: Runs, run_id: str) -> None:
    """Take the lock of the live run for this process; a run that held it without a supervisor is marked as failed.

    Raises LiveRunError while another run is live.
    """
    if lost := runs.claim(run_id, ProcessIdentity.of(os.getpid())):
        mark_lost(runs[lost])


def mark_lost(directory: RunDirectory) -> None:
    """Store that a run has failed if its supervisor is gone."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        if directory.has_lost_supervisor:
            directory.mark_failed(directory.effective_state().reason)
            spending.settle(directory, time.time())


def kill(runs: Runs, spec: RunSpec) -> None:
    """Kill the remaining processes of a run on all its hosts at once; a host that is gone is left out."""
    python = sys.executable if spec.launcher else NODE_PYTHON
    argv = processes.command(
        python, str(runs.root), run_id=spec.run_id, others=False, ranks_only=False, number=signal.SIGKILL, wait_s=5.0
    )
    ssh = str(TREE / "agent" / "bin" / "ssh")
    commands = [remote_command(ssh, host, str(TREE), argv) for host in (None, *spec.hosts)]
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(64, len(commands))) as pool:
        list(pool.map(lambda command: execute(command, 30.0), commands))
