"""Terminate the remaining processes of a run that lost its supervisor, and store that the run has failed."""

from __future__ import annotations

import concurrent.futures
import contextlib
import signal
import sys
import time
from collections.abc import Callable

from agent.remote import processes
from agent.remote.command import OWN_TREE, execute, remote_command
from agent.runs import spending
from agent.runs.directory import RunDirectory
from agent.runs.store import Runs
from agent.spec.nodes import NODE_PYTHON
from agent.spec.run import RunSpec


def claim_hosts(runs: Runs, spec: RunSpec, check: Callable[[], object] = lambda: None) -> None:
    """Claim a run's hosts for this process. Runs that held nodes without a supervisor are marked as failed.

    A run without hosts claims every node. `check` is called in the transaction and may raise. Raises LiveRunError if a
    live run or a task has one of the hosts.
    """
    for lost in runs.claim(spec.run_id, spec.hosts or None, check):
        mark_lost(runs[lost])


def mark_lost(directory: RunDirectory, obstacle: str = "") -> None:
    """Store that a run has failed, if it has lost its supervisor and does not continue automatically.

    `obstacle` is the reason why a run that could continue must not; "" without one.
    """
    with contextlib.suppress(FileNotFoundError, ValueError):
        lost = directory.lost_state()
        if lost is None or (not obstacle and directory.goes_on):
            return
        reason = directory.cause_of_death(lost) + (f"; the run cannot be restarted: {obstacle}" if obstacle else "")
        if directory.mark_failed(reason, of=lost.owner):
            spending.settle(directory, time.time())


def kill(runs: Runs, spec: RunSpec) -> None:
    """Kill the remaining processes of a run on all hosts concurrently. Hosts that do not answer are ignored."""
    python = sys.executable if spec.launcher else NODE_PYTHON
    argv = processes.command(
        python, str(runs.root), run_id=spec.run_id, others=False, ranks_only=False, number=signal.SIGKILL, wait_s=5.0
    )
    tree = f"{spec.efs_mount}/payloads/{OWN_TREE.name}"
    commands = [remote_command(host, tree, argv) for host in (None, *spec.hosts)]
    commands += [remote_command(host, tree, argv, as_rank=True) for host in spec.hosts]
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(64, len(commands))) as pool:
        list(pool.map(lambda command: execute(command, 30.0), commands))
