"""Stop a run that is queued or live, and kill the processes of a run that has lost its supervisor."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time

from agent.files.safe_read import read_regular
from agent.runs import liveness, run_messages, run_queue
from agent.runs.node_claims import Runs
from agent.runs.run_directory import RunDirectory
from agent.runs.stored_state import State
from agent.spec.nodes import NODE_PYTHON
from agent.spec.run import RunSpec
from agent.spec.run_states import QUEUED


def stop(runs: Runs, directory: RunDirectory, grace_s: float) -> State:
    """Stop a run, wait until it has ended, and return its final state.

    Its ranks get SIGTERM, and SIGKILL after `grace_s` seconds. A queued run is removed from the queue. If the run has
    lost its supervisor, its remaining processes are killed on all hosts, and it does not continue automatically. A run
    that has ended does not change. Raises OSError.
    """
    if directory.effective_state().state == QUEUED:
        run_queue.finish(directory, "stopped", run_queue.WITHDRAWN)
    state = directory.effective_state()
    if state.is_live:
        with contextlib.suppress(IsADirectoryError):  # A rank may keep creating one. The signal below works anyway.
            directory.write(directory.stop_request, json.dumps({"grace_s": grace_s, "time": time.time()}))
        told = None
        while (state := directory.effective_state()).is_live:
            pid = liveness.supervisor_pid(directory.run_id)
            if pid and pid != told:  # a new supervisor if the scheduler restarts the run meanwhile
                told = pid
                with contextlib.suppress(ProcessLookupError):  # it has exited since
                    os.kill(pid, signal.SIGTERM)
            time.sleep(run_messages.POLL_S)
    if directory.lost_state():
        kill(runs, RunSpec.from_json(read_regular(directory.spec).decode("utf-8")))
        runs.mark_lost(directory.run_id)
        state = directory.stored_state()
        runs.release_lost(directory.run_id)
    return state


def kill(runs: Runs, spec: RunSpec) -> None:
    """Kill the remaining processes of a run on the master and all hosts concurrently, and wait for them.

    Hosts that do not answer are ignored.
    """
    # Not at the top: most runs have a supervisor that stops them, and users wait.
    import concurrent.futures

    from agent.remote import processes
    from agent.remote.ssh import OWN_TREE, execute, remote_command

    python = sys.executable if spec.launcher else NODE_PYTHON
    argv = processes.command(
        python, str(runs.root), run_id=spec.run_id, ranks_only=False, number=signal.SIGKILL, wait_s=5.0
    )
    tree = f"{spec.efs_mount}/payloads/{OWN_TREE.name}"
    commands = [remote_command(host, tree, argv) for host in (None, *spec.hosts)]
    commands += [remote_command(host, tree, argv, as_rank=True) for host in spec.hosts]
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(64, len(commands))) as pool:
        list(pool.map(lambda command: execute(command, 30.0), commands))
