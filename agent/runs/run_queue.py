"""The queue of runs: the states `queued` in the database of runs. The run that starts next is first."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Final

from agent.files.atomic_write import write_atomically
from agent.runs import database
from agent.runs.state import State
from agent.runs.store import Runs
from agent.spec.states import QUEUED

WITHDRAWN: Final = "removed from the queue"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunQueue:
    """The queue of one cluster. Each change is one transaction, so two changes never overlap."""

    runs: Runs

    def ids(self) -> list[str]:
        """Return the ids of the waiting runs, the next one first."""
        return [run_id for (run_id,) in database.rows("SELECT run_id FROM states WHERE place > 0 ORDER BY place")]

    def position(self, run_id: str) -> int | None:
        """Return a run's place in the queue, 1 for the next one; None if it is not waiting."""
        waiting = self.ids()
        return waiting.index(run_id) + 1 if run_id in waiting else None

    def describe_position(self, run_id: str, waiting: Sequence[str] | None = None) -> str:
        """Return a run's place in the queue and the run directly before it, as text; "" if it is not waiting.

        For the first run in the queue, the text names the live runs instead.
        `waiting` is the result of `ids`, if the caller has it.
        """
        waiting = self.ids() if waiting is None else waiting
        if run_id not in waiting:
            return ""
        place = waiting.index(run_id)
        before = waiting[place - 1] if place else " or ".join(self.runs.live())
        return f"position {place + 1} in the queue" + (f", after {before}" if before else "")

    def start(self, state: State, spec: str) -> bool:
        """Remove a run from the queue, write its spec.json with the text `spec`, and store `state`.

        Return False, and change nothing, if the run was no longer waiting.
        """
        with database.transaction():
            if self._waiting(state.run_id) is None:
                return False
            write_atomically(self.runs[state.run_id].spec, spec)
            self.runs[state.run_id].write_state(state)
        return True

    def finish(self, run_id: str, state: str, reason: str) -> bool:
        """Remove a run from the queue and store its final state, with the reason.

        Return False, and change nothing, if the run was no longer waiting.
        """
        with database.transaction():
            if (waiting := self._waiting(run_id)) is None:
                return False
            ended = dataclasses.replace(waiting, state=state, reason=reason, updated=time.time())
            self.runs[run_id].write_state(ended)
        return True

    def set_reason(self, run_id: str, reason: str) -> None:
        """Store the reason why a run is still waiting. Does nothing if the run is no longer waiting."""
        with database.transaction():
            waiting = self._waiting(run_id)
            if waiting and waiting.reason != reason:
                self.runs[run_id].write_state(dataclasses.replace(waiting, reason=reason, updated=time.time()))

    def _waiting(self, run_id: str) -> State | None:
        try:
            state = self.runs[run_id].stored_state()
        except FileNotFoundError:
            return None
        return state if state.state == QUEUED else None
