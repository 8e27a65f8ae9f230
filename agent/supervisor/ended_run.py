"""Resume or remove a run that has ended, and kill what is left of its processes."""

from __future__ import annotations

import concurrent.futures
import contextlib
import secrets
import signal
import sys
import time
from typing import Any

from agent.files.atomic_write import open_to_append
from agent.files.safe_read import count_files, read_regular
from agent.remote import processes
from agent.remote.ssh import OWN_TREE, execute, remote_command
from agent.runs import database, liveness, run_record, trusted_spec
from agent.runs import stored_state as states
from agent.runs.all_runs import LiveRunError, Runs
from agent.runs.run_directory import RunDirectory
from agent.runs.stored_state import State
from agent.spec.nodes import NODE_PYTHON
from agent.spec.resumed_spec import resume_point
from agent.spec.run import RunSpec
from agent.supervisor import rank_permissions


def rewrite(directory: RunDirectory, spec: RunSpec) -> None:
    """Store the spec of a run's next attempt in the database and in spec.json.

    The previous spec is kept as spec-N.json, with N the number of its attempt. spec.json exists at every moment. Raises
    OSError.
    """
    earlier = read_regular(directory.spec)
    directory.write(directory.path / f"spec-{directory.attempt}.json", earlier)
    directory.write(directory.spec, trusted_spec.accept(spec))


def reopen(directory: RunDirectory, spec: RunSpec, state: State) -> None:
    """Reset the files of an ended run for its next attempt, and store `spec` and `state`.

    The earlier spec is kept as spec-N.json. The timeline is cleared, the stop request and the report of the pre-flight
    check are removed, and a line in the log reports from where the run resumes. Raises OSError.
    """
    rewrite(directory, spec)
    run_record.reset_course(directory)
    directory.discard(directory.stop_request)
    directory.discard(directory.preflight)
    with open_to_append(directory.log) as log:
        since = resume_point(spec, run_record.checkpoints(directory))
        log.write(f"[supervisor] resumed at {time.strftime('%Y-%m-%d %H:%M:%S')}, {since}\n".encode())
    directory.write_state(state)


def remove(runs: Runs, directory: RunDirectory) -> dict[str, Any]:
    """Remove a run that has ended, with its checkpoints.

    Return JSON values: `run_id`, and the number of removed `files` and `bytes`. Raises LiveRunError if the run has not
    ended or is being resumed, and OSError.
    """
    removed = runs.root / f".removed-{directory.run_id}-{secrets.token_hex(4)}"
    with database.transaction():
        if not (state := directory.effective_state()).has_ended:
            raise LiveRunError(directory.run_id, state.state)
        # `resume` claims nodes before it changes the state.
        if directory.run_id in runs.live():
            raise LiveRunError(directory.run_id, "starting")
        files, size_bytes = count_files(directory.path)
        with contextlib.suppress(FileNotFoundError):
            directory.path.rename(removed)
        liveness.forget(directory.run_id)
        trusted_spec.forget(directory.run_id)
        states.forget(directory.run_id)
    if removed.exists():
        rank_permissions.remove(removed)
    return {"run_id": directory.run_id, "files": files, "bytes": size_bytes}


def kill(runs: Runs, spec: RunSpec) -> None:
    """Kill the remaining processes of a run on the master and all hosts concurrently, and wait for them.

    Hosts that do not answer are ignored.
    """
    python = sys.executable if spec.launcher else NODE_PYTHON
    argv = processes.command(
        python, str(runs.root), run_id=spec.run_id, ranks_only=False, number=signal.SIGKILL, wait_s=5.0
    )
    tree = f"{spec.efs_mount}/payloads/{OWN_TREE.name}"
    commands = [remote_command(host, tree, argv) for host in (None, *spec.hosts)]
    commands += [remote_command(host, tree, argv, as_rank=True) for host in spec.hosts]
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(64, len(commands))) as pool:
        list(pool.map(lambda command: execute(command, 30.0), commands))
