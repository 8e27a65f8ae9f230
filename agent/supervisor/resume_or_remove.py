"""Prepare the next attempt of a run that has ended, or remove the run."""

from __future__ import annotations

import contextlib
import secrets
import time
from typing import Any

from agent.files.atomic_write import open_to_append
from agent.files.safe_read import count_files, read_regular
from agent.runs import database, liveness, run_record, trusted_spec
from agent.runs import stored_state as states
from agent.runs.node_claims import LiveRunError, Runs
from agent.runs.run_directory import RunDirectory
from agent.runs.stored_state import State
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
