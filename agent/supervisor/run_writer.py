"""The state and files that a supervisor writes for its run, while no other master has taken over the run."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent.remote.ssh import Completed
from agent.runs import run_record
from agent.runs.run_directory import RunDirectory
from agent.runs.stored_state import State, SupersededError
from agent.supervisor import current_master, rank_permissions
from agent.supervisor.bucket_copy import Copier


class RunWriter:
    """The state, timeline and record of a run, and the copy in the bucket, as its supervisor writes them."""

    def __init__(
        self,
        directory: RunDirectory,
        state: State,
        *,
        run: Callable[[Sequence[str], float], Completed],
        log_line: Callable[[str], None],
        settle: Callable[[State], None],
        earlier: Mapping[str, Any] | None = None,
    ) -> None:
        """Configure what a supervisor writes for its run. Nothing is written yet.

        `run` executes a command with a time limit in seconds. `settle` is called with the final state before it is
        stored. `earlier` is a lost supervisor's timeline.
        """
        self._directory, self._run, self._log, self._settle = directory, run, log_line, settle
        self.copier = Copier(directory, run)
        self.state = state
        self.is_ours = True
        """False after this process has noticed that another master has taken over the run."""
        self.course: dict[str, Any] = {"times": {}, **(earlier or {}), "archive": self.copier.address}

    def update(self, **changes: object) -> None:
        """Store the state with changed fields, if they differ.

        Before a final state is stored, the time and cost, the record and the last copy to the bucket are completed, and
        all files are made readable. This may take minutes. Trouble with the files is logged. Raises SupersededError if
        another master has taken over the run, and OSError if the state cannot be stored.
        """
        self.check_ours()
        state = dataclasses.replace(self.state, **changes)  # type: ignore[arg-type]  # checked by callers
        if state == self.state:
            return
        state = dataclasses.replace(state, updated=time.time())
        if state.has_ended:
            self._settle(state)
            # Do all of this before the final state is visible: a user may destroy the cluster right after that, and
            # nothing may write to its bucket then.
            self.record_step("ended")
            if trouble := rank_permissions.make_readable(self._directory, self._run):
                self._log(f"`fab fetch` may fail: the login user {trouble}; make it readable on the master (`fab ssh`)")
            self.write_record(state)
            if trouble := self.copier.finish():
                lacks = "incomplete" if self.copier.address else "missing"
                save = f"to save the results before `fab down`: `fab fetch --run {state.run_id}`"
                self._log(f"the copy in the bucket is {lacks}: {trouble}; {save}")
                self.record_step("ended", trouble=trouble)
        self.check_ours()  # The last copy may have taken minutes.
        self._directory.write_state(state)
        self.state = state

    def record_step(self, step: str, **facts: object) -> None:
        """Record in the timeline that the run has reached a step, with further fields.

        Raises SupersededError if another master has taken over the run. Errors of writing are ignored.
        """
        self.check_ours()
        self.course = {**self.course, **facts, "times": {**self.course["times"], step: round(time.time(), 3)}}
        with contextlib.suppress(OSError):  # a full disk is reported when the state cannot be stored
            run_record.write_course(self._directory, self.course)

    def write_record(self, state: State | None = None) -> None:
        """Write the record with a given state, which need not be stored, or with the stored one. Errors are ignored."""
        with contextlib.suppress(OSError, ValueError):
            run_record.write_record(self._directory, state or self.state)

    def check_ours(self) -> None:
        """Raise SupersededError if another master has taken over the run. Does nothing after the run has ended."""
        if not self.state.has_ended and (other := current_master.successor(self._directory.path.parent)):
            self.is_ours = False
            raise SupersededError(self._directory.run_id, other)
