"""What a supervisor stores of its run: the state, the course and the record, and nothing once the run is another's."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from agent.remote.command import Completed
from agent.runs import record
from agent.runs.directory import RunDirectory, State, SupersededError
from agent.supervisor import rank_files
from agent.supervisor.archive import Copier


class StoredRun:
    """The files of a run that its supervisor writes, with the copy in the bucket."""

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
        """`settle`: called with the final state before it is stored; `earlier`: the course of a supervisor before."""
        self._directory, self._run, self._log, self._settle = directory, run, log_line, settle
        self.copier = Copier(directory, run)
        self.state = state
        self.is_ours = True
        """Whether no other process has given this run up for dead, so far as is known."""
        self.course: dict[str, Any] = {"times": {}, **(earlier or {}), "archive": self.copier.address}

    def update(self, **changes: object) -> None:
        """Store the state with these fields changed; a final one only after all else is at rest.

        Raises SupersededError where the run is another's.
        """
        state = dataclasses.replace(self.state, updated=time.time(), **changes)  # type: ignore[arg-type]  # checked by callers
        self.check_ours()
        if state.has_ended:
            self._settle(state)
            # Before the final state shows: a user may then destroy the cluster, whose bucket must be at rest.
            self.record_step("ended")
            if trouble := rank_files.make_readable(self._directory, self._run):
                self._log(f"the results are not whole: {trouble}")
            self._write_record(state)
            if trouble := self.copier.finish():
                self._log(f"the copy in the bucket is not whole: {trouble}")
                self.record_step("ended", trouble=trouble)
        with self._ours():
            self._directory.write_own_state(state)
        self.state = state

    def record_step(self, step: str, **facts: object) -> None:
        """Record that the run has reached a step, and the facts known since. Raises SupersededError."""
        self.check_ours()
        self.course = {**self.course, **facts, "times": {**self.course["times"], step: round(time.time(), 3)}}
        with contextlib.suppress(OSError):  # a full disk is reported where it ends the run
            record.write_course(self._directory, self.course)

    def write_record(self) -> None:
        """Write the record anew, as far as the disk allows."""
        self._write_record(self.state)

    def _write_record(self, state: State) -> None:
        with contextlib.suppress(OSError, ValueError):
            record.write_record(self._directory, state)

    def check_ours(self) -> None:
        """Raise SupersededError where the run is no longer ours; once it has ended there is nobody to take it."""
        with self._ours():
            if not self.state.has_ended:
                self._directory.check_owner(self.state.owner)

    @contextlib.contextmanager
    def _ours(self) -> Iterator[None]:
        """Note where the block finds that another process has given this run up for dead."""
        try:
            yield
        except SupersededError:
            self.is_ours = False
            raise
