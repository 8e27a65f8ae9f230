"""Shell-script runs under the supervisor's command line: their specs, states, logs and processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent.runs import liveness
from agent.spec.states import FINAL_STATES
from tests.factories import make_spec
from tests.waiting import eventually

PROJECT = Path(__file__).resolve().parents[3]

Call = Callable[..., subprocess.CompletedProcess[str]]


def spec(efs: Path, run_id: str, script: str) -> str:
    """Return the spec of a run with a shell script as its launcher; $RUN is the run's directory."""
    launcher = ("/bin/sh", "-c", f"RUN={efs}/runs/{run_id}; {script}")
    return make_spec(
        run_id=run_id, efs_mount=str(efs), command=(), hosts=(), interface="", launcher=launcher, recipe="digits"
    ).to_json()


def run_processes(efs: Path) -> list[int]:
    """Return the pids of every process of any run."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and f"DEEPCDK_RUNS={efs}/runs".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def supervisors(efs: Path) -> list[int]:
    """Return the pids of every process of the supervisor's command line: supervisors, schedulers and other commands."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"agent.supervisor.cli" in words and f"{efs}/runs".encode() in words:
            found.append(int(entry.name))
    return found


def end_all(efs: Path) -> None:
    """Kill all processes of the runs, starting with supervisors, which could start more."""
    while pids := supervisors(efs) or run_processes(efs):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def final_state(efs: Path, run_id: str) -> dict[str, Any]:
    path = efs / "runs" / run_id / "state.json"
    return eventually(lambda: state if (state := json.loads(path.read_text()))["state"] in FINAL_STATES else None)


def live_state(efs: Path, run_id: str) -> dict[str, Any]:
    path = efs / "runs" / run_id / "state.json"
    return eventually(lambda: state if (state := json.loads(path.read_text()))["state"] == "running" else None)


def supervisor_of(efs: Path, run_id: str) -> int:
    """Return the pid of a run's supervisor once the run is live."""
    live_state(efs, run_id)
    pid = liveness.supervisor_pid(run_id)
    assert pid is not None
    return pid


def log_of(efs: Path, run_id: str) -> str:
    """Return the output of the run's launcher, or "" before it has started."""
    path = efs / "runs" / run_id / "launcher.log"
    return path.read_text() if path.exists() else ""
