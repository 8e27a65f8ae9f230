"""The states of runs: whether a run is queued, live or has ended. They are stored in the database of runs.

Each state is also written to state.json in the run's directory, for users. The master reads these copies only into a
new database and into a restored backup, which may be older (`import_copies`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from pathlib import Path
from typing import Any, Final

from agent.files.safe_read import read_regular
from agent.runs import database, liveness, trusted_spec
from agent.spec import untrusted_json
from agent.spec.run import RunSpec
from agent.spec.run_id import is_run_id
from agent.spec.run_states import FINAL_STATES, LAST_TIME, LIVE_STATES, QUEUED, STATES

COPY: Final = "state.json"
LAST_LINES: Final = 20
"""Maximum number of lines of its log that the state of a failed run contains."""


class SupersededError(RuntimeError):
    """Report that another master has taken over the run. Carries `run_id`."""

    def __init__(self, run_id: str, master: str) -> None:
        self.run_id = run_id
        super().__init__(f"master {master} has taken over run {run_id}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """The state of a run. Times are in seconds since 1970."""

    run_id: str
    state: str
    """queued, starting, running, succeeded, failed or stopped."""
    started: float
    """When the run was started or resumed. For a queued run: when it was queued."""
    updated: float
    """When the state was last stored. `RunDirectory.effective_state` replaces it by a live run's last heartbeat."""
    reason: str = ""
    """Why the run failed, stopped or is waiting; its current activity while it starts; a warning while it runs."""
    exit_code: int | None = None
    """Exit status of the launcher, after it has exited."""
    hosts: tuple[str, ...] = ()
    recipe: str = ""
    last_lines: tuple[str, ...] = ()
    """Last lines of launcher.log, after the run has failed."""

    def __post_init__(self) -> None:
        # The values may come from a file that root on a worker can change.
        texts = (self.run_id, self.state, self.reason, self.recipe, *self.hosts, *self.last_lines)
        if not all(isinstance(text, str) for text in texts) or self.state not in STATES:
            raise ValueError(f"run {self.run_id!a} has the invalid state {self.state!a}, or a field that is not text")
        if not all(isinstance(each, int | float) and 0 <= each <= LAST_TIME for each in (self.started, self.updated)):
            times = f"started = {self.started!a} and updated = {self.updated!a}"
            raise ValueError(f"run {self.run_id!a}: {times}: must be seconds since 1970")
        if self.exit_code is not None and type(self.exit_code) is not int:
            raise ValueError(f"run {self.run_id!a}: exit_code = {self.exit_code!a}: must be a whole number")

    @classmethod
    def starting(cls, spec: RunSpec) -> State:
        """Return the first state of an attempt of a run, `starting`, with the hosts and recipe of its spec."""
        now = time.time()
        return cls(
            run_id=spec.run_id,
            state="starting",
            started=now,
            updated=now,
            hosts=tuple(host.name for host in spec.hosts),
            recipe=spec.recipe,
        )

    @property
    def is_live(self) -> bool:
        """Return whether the stored state is `starting` or `running`."""
        return self.state in LIVE_STATES

    @property
    def is_orphaned(self) -> bool:
        """Return whether the stored state is live, but the supervisor is gone."""
        return self.is_live and not liveness.is_held(self.run_id)

    @property
    def has_ended(self) -> bool:
        """Return whether the run is neither live nor queued."""
        return self.state in FINAL_STATES

    def to_document(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> State:
        """Build the state from JSON values. Raises ValueError, TypeError or KeyError if they are invalid."""
        return cls(**{**document, **{key: tuple(document.get(key, ())) for key in ("hosts", "last_lines")}})


def read(run_id: str) -> State:
    """Return the stored state of a run. Raises FileNotFoundError if the run does not exist."""
    found = database.rows("SELECT document FROM states WHERE run_id = ?", run_id)
    if not found:
        raise FileNotFoundError(f"run {run_id} has no state in the database of runs")
    return State.from_document(json.loads(found[0][0]))


def store(state: State) -> None:
    """Store the state of a run.

    A queued run keeps its place in the queue. If it was not queued before, it gets the last place.
    """
    with database.transaction() as changing:
        changing.execute(
            """
            INSERT INTO states (run_id, state, document, place)
            VALUES (?1, ?2, ?3, CASE ?2 WHEN 'queued' THEN (SELECT coalesce(max(place), 0) + 1 FROM states) END)
            ON CONFLICT (run_id) DO UPDATE SET state = ?2, document = ?3, summary = NULL,
                place = CASE ?2 WHEN 'queued' THEN coalesce(place, excluded.place) END
            """,
            (state.run_id, state.state, json.dumps(state.to_document())),
        )


def forget(run_id: str) -> None:
    """Delete the state of a removed run. Does nothing if there is none."""
    with database.transaction() as changing:
        changing.execute("DELETE FROM states WHERE run_id = ?", (run_id,))


def import_copies(root: Path) -> None:
    """Read the state.json of all runs in `root`, and store the states that are newer than those in the database.

    This is done once for each database, because a new database and a restored backup may lack them. A queued run
    without its spec is stored as failed, because this master cannot start it. Directories without a valid state are
    skipped.
    """
    if database.is_complete() or not root.is_dir():
        return
    found = []
    for path in root.glob(f"[!.]*/{COPY}"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            state = State.from_document(untrusted_json.parse(read_regular(path)))
            if state.run_id == path.parent.name and is_run_id(state.run_id):
                found.append(state)
    with database.transaction():
        stored = {state.run_id: state for state in every()}
        for state in sorted(found, key=lambda each: each.started):
            if state.run_id in stored and state.updated <= stored[state.run_id].updated:
                continue
            if state.state == QUEUED and trusted_spec.text_of(state.run_id) is None:
                reason = f"it is missing from this master's queue; to queue it again: `fab resume {state.run_id}`"
                state = dataclasses.replace(state, state="failed", reason=reason)
            store(state)
        database.mark_complete()


def every() -> list[State]:
    """Return the stored states of all runs, oldest run first."""
    found = database.rows("SELECT document FROM states ORDER BY run_id")
    return [State.from_document(json.loads(document)) for (document,) in found]
