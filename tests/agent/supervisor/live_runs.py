"""Runs with a shell script as their launcher: their specs, supervision, states, logs and processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agent.remote.ssh import Completed, execute
from agent.runs import liveness, run_record
from agent.runs.node_claims import Runs
from agent.runs.run_directory import RunDirectory
from agent.runs.stored_state import State
from agent.spec.run import RunSpec
from agent.spec.run_states import FINAL_STATES
from agent.spec.submission import Origin
from agent.supervisor.supervisor import Supervisor
from tests.factories import make_spec
from tests.waiting import eventually

PROJECT = Path(__file__).resolve().parents[3]

Call = Callable[..., subprocess.CompletedProcess[str]]


def script_spec(efs: Path, script: str, **changes: Any) -> RunSpec:
    """Return the spec of run `one` with a shell script as its launcher; $RUN is the run's directory."""
    values = {"run_id": "one", "efs_mount": str(efs), "command": (), "hosts": (), "interface": "", **changes}
    launcher = ("/bin/sh", "-c", f"RUN={efs}/runs/{values['run_id']}; {script}")
    return make_spec(launcher=launcher, recipe="digits", **values)


def spec(efs: Path, run_id: str, script: str) -> str:
    """Return the spec of a run with a shell script as JSON."""
    return script_spec(efs, script, run_id=run_id).to_json()


def supervise(
    spec: RunSpec, origin: Origin | None = None, run: Callable[[Sequence[str], float], Completed] = execute
) -> tuple[State, RunDirectory]:
    """Supervise a run to its end in this process; return its final state and its directory."""
    runs = Runs(root=Path(spec.runs_root))
    directory = runs[spec.run_id]
    directory.path.mkdir(parents=True, exist_ok=True)
    directory.spec.write_text(spec.to_json())
    if origin:
        run_record.write_origin(directory, origin)
    with directory.log.open("ab", buffering=0) as log:
        supervisor = Supervisor(runs, spec, log, run)
        directory.write_state(supervisor.state)
        return supervisor.supervise(), directory


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
