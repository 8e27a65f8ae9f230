"""The state of a run: whether it is queued, live or has ended, and which process it belongs to."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from agent.runs import liveness
from agent.spec.run import RunSpec
from agent.spec.states import FINAL_STATES, LAST_TIME, LIVE_STATES, STATES


class SupersededError(RuntimeError):
    """Report that another process has taken over the run, because it considered this supervisor lost.

    The run may have been resumed since. Carries `run_id`.
    """

    def __init__(self, run_id: str, now: str) -> None:
        self.run_id = run_id
        super().__init__(f"another process has taken over run {run_id}, which is now {now}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """The state of a run, as stored in state.json. Times are in seconds since 1970."""

    run_id: str
    state: str
    """queued, starting, running, succeeded, failed or stopped."""
    owner: str
    """The process that the run belongs to (`liveness.this_process`), or that queued it. A supervisor that finds another
    name has lost the run to that process, for example to one on a new master."""
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
        # The values may come from a file that ranks can change.
        texts = (self.run_id, self.state, self.owner, self.reason, self.recipe, *self.hosts, *self.last_lines)
        if not all(isinstance(text, str) for text in texts) or self.state not in STATES:
            raise ValueError(f"run {self.run_id!a} has the invalid state {self.state!a}, or a field that is not text")
        if not all(isinstance(each, int | float) and 0 <= each <= LAST_TIME for each in (self.started, self.updated)):
            raise ValueError("started and updated must be seconds since 1970")
        if self.exit_code is not None and type(self.exit_code) is not int:
            raise ValueError("exit_code must be a whole number")

    @classmethod
    def starting(cls, spec: RunSpec) -> State:
        """Return the first state of a run, owned by this process."""
        now = time.time()
        return cls(
            run_id=spec.run_id,
            state="starting",
            owner=liveness.this_process(),
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
