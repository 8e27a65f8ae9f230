"""The queue of runs: the states `queued` in the database of runs. The run that starts next is first.

Each change is one transaction, so two changes never overlap.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Final

from agent.files.atomic_write import write_atomically
from agent.runs import database
from agent.runs.run_directory import RunDirectory
from agent.runs.stored_state import State
from agent.spec.run_states import QUEUED

WITHDRAWN: Final = "removed from the queue"


def ids() -> list[str]:
    """Return the ids of the waiting runs, the next one first."""
    return [run_id for (run_id,) in database.rows("SELECT run_id FROM states WHERE place > 0 ORDER BY place")]


def dequeue(directory: RunDirectory, state: State, spec: str) -> bool:
    """Remove a run from the queue, write its spec.json with the text `spec`, and store `state`; return True.

    The caller starts the run. Return False, and change nothing, if the run was no longer waiting.
    """
    with database.transaction():
        if _waiting(directory) is None:
            return False
        write_atomically(directory.spec, spec)
        directory.write_state(state)
    return True


def finish(directory: RunDirectory, state: str, reason: str) -> bool:
    """Remove a run from the queue and store its final state (`stopped` or `failed`), with the reason; return True.

    Return False, and change nothing, if the run was no longer waiting.
    """
    with database.transaction():
        if (waiting := _waiting(directory)) is None:
            return False
        directory.write_state(dataclasses.replace(waiting, state=state, reason=reason, updated=time.time()))
    return True


def set_reason(directory: RunDirectory, reason: str) -> None:
    """Store the reason why a run is still waiting. Does nothing if the run is no longer waiting."""
    with database.transaction():
        waiting = _waiting(directory)
        if waiting and waiting.reason != reason:
            directory.write_state(dataclasses.replace(waiting, reason=reason, updated=time.time()))


def _waiting(directory: RunDirectory) -> State | None:
    try:
        state = directory.stored_state()
    except FileNotFoundError:
        return None
    return state if state.state == QUEUED else None
