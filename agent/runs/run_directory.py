"""The directory of a run on the shared file system: its files, its state, and whether it continues automatically.

If the supervisor of a run is lost, the scheduler starts a new one within seconds, under these conditions: this master
has accepted the run's spec, the spec has no custom launcher, a supervisor has started the run, a restart is left
(`--restarts`), and no stop was requested. Until then the run counts as live: no other run gets its nodes, and
`fab attach` continues.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import json
import time
from pathlib import Path
from typing import Any, Final

from agent.files.atomic_write import describe_full_disk, move_directory, write_atomically
from agent.files.safe_read import names_in, read_listed, read_regular
from agent.runs import database, liveness, run_log, trusted_spec
from agent.runs import stored_state as states
from agent.runs.stored_state import State
from agent.spec import untrusted_json
from agent.spec.run import RunSpec
from agent.spec.run_states import MAX_STOP_GRACE_S, STOP_FILE, STOP_GRACE_S
from agent.spec.sweep_trial import Trial

ORIGIN_FILE: Final = "origin.json"
COURSE_FILE: Final = "course.json"
_MAX_NAME: Final = 256
LINKED: Final = "linked"
APART: Final = "apart"
SUPERVISOR_DIED: Final = "supervisor died"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunDirectory:
    """The files of one run."""

    path: Path

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def attempt(self) -> int:
        """Return the number of the run's last attempt, from 1. Each attempt keeps the previous spec as spec-N.json."""
        return 1 + sum(fnmatch.fnmatch(name, "spec-*.json") for name in names_in(self.path))

    @property
    def spec(self) -> Path:
        return self.path / "spec.json"

    def started_by(self) -> dict[str, str] | None:
        """Return who started the run, from origin.json, by the keys of `agent.spec.submission.Origin.started_by`.

        Return None if this is missing or malformed.
        """
        try:
            found = untrusted_json.parse(read_regular(self.path / ORIGIN_FILE))["started_by"]
            return {str(key): str(value)[:_MAX_NAME] for key, value in found.items()} or None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def trial(self) -> dict[str, Any] | None:
        """Return the run's trial in a sweep, from spec.json: the fields of `Trial` without `plan`, as JSON values.

        None for a run without a sweep, and if spec.json is malformed.
        """
        try:
            found = Trial.from_document(untrusted_json.parse(read_regular(self.spec))["trial"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        document = dataclasses.asdict(found)
        document.pop("plan")
        return document if found.sweep else None

    @property
    def log(self) -> Path:
        return self.path / "launcher.log"

    @property
    def launch_file(self) -> Path:
        """Return the path of launch.json, which contains the launcher's exact command and environment."""
        return self.path / "launch.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    def stall_report(self, attempt: int, node: str) -> Path:
        """Return the path of the file in which a node reports the numbers of its stuck ranks in attempt `attempt`."""
        return self.path / f"stalled-{attempt}-{node}"

    def link_report(self, kind: str, attempt: int, node: str) -> Path:
        """Return the path of a node's report on the connections of its ranks, in attempt `attempt`.

        `kind` is LINKED for the report that a rank is connected to another rank, or APART for the report that none is.
        """
        return self.path / f"{kind}-{attempt}-{node}"

    @property
    def preflight(self) -> Path:
        return self.path / "preflight.json"

    @property
    def stop_request(self) -> Path:
        return self.path / STOP_FILE

    def document(self, name: str) -> dict[str, Any] | None:
        """Return the JSON object in a file of the run; None if the file is missing or malformed."""
        try:
            found = untrusted_json.parse(read_listed(self.path / name))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def course(self) -> dict[str, Any]:
        """Return the run's timeline (course.json); {} if it is missing or malformed."""
        return self.document(COURSE_FILE) or {}

    def restarts_made(self) -> list[dict[str, Any]]:
        """Return the restarts since the run was started or resumed, from its timeline; [] if there are none."""
        restarts = self.course().get("restarts")
        return [each for each in restarts if isinstance(each, dict)] if isinstance(restarts, list) else []

    def write(self, path: Path, content: str | bytes) -> None:
        """Write a file of the run atomically. Raises OSError.

        A directory that a rank has created in its place is renamed.
        """
        move_directory(path)
        write_atomically(path, content)

    def discard(self, path: Path) -> None:
        """Remove a file of the run if there is one. Raises OSError.

        A directory that a rank has created in its place is renamed.
        """
        move_directory(path)
        path.unlink(missing_ok=True)

    def stop_grace_s(self) -> float:
        """Return the seconds from SIGTERM to SIGKILL for the ranks, from the stop request.

        Return STOP_GRACE_S if there is no request, or if its value is invalid.
        """
        try:
            grace_s = float(untrusted_json.parse(read_regular(self.stop_request))["grace_s"])
        except (OSError, ValueError, KeyError, TypeError):
            return STOP_GRACE_S
        return grace_s if 0 <= grace_s <= MAX_STOP_GRACE_S else STOP_GRACE_S

    @property
    def group(self) -> int:
        """Return the id of the directory's group. Its members may use the directory after `open_to_ranks`."""
        return self.path.stat().st_gid

    def close_to_ranks(self) -> None:
        """Prevent ranks from reading or writing the directory of a run that is waiting or has ended."""
        self.path.chmod(0o700)

    def stored_state(self) -> State:
        """Return the stored state of the run. Raises FileNotFoundError if the run does not exist."""
        return states.read(self.run_id)

    def write_state(self, state: State) -> None:
        """Store the state of the run, and write its copy, state.json. Raises DatabaseError.

        If the copy cannot be written because the disk is full, the stored reason says so. Other errors of the copy are
        ignored. Before a final state is stored, the directory is closed to ranks: another run may start right after it.
        """
        if state.has_ended:
            with contextlib.suppress(OSError):
                self.close_to_ranks()
        states.store(state)
        try:
            self.write(self.path / states.COPY, json.dumps(state.to_document(), indent=1))
        except OSError as error:
            if full := describe_full_disk(self.path.parent, str(error)):
                states.store(dataclasses.replace(state, reason=f"{state.reason}; {full}" if state.reason else full))

    def effective_state(self) -> State:
        """Return the current state of the run. It differs from the stored state in two cases.

        The state of a live run was updated at its last heartbeat. A run that lost its supervisor is `starting` if it
        continues automatically, and `failed` otherwise. Nothing is written; `mark_lost` stores a failure. Raises
        FileNotFoundError if the run does not exist.
        """
        return self.effective(self.stored_state())

    def effective(self, state: State) -> State:
        """Return the current state of the run, like `effective_state`, for a caller that has read the stored state."""
        state = self._latest(state)
        if state.is_live:
            state = dataclasses.replace(state, updated=max(state.updated, liveness.last_beat(self.run_id)))
        if not state.is_orphaned:
            return state
        reason = self.describe_loss(state)
        if self.may_continue:
            return dataclasses.replace(state, state="starting", reason=f"{reason}; the run continues automatically")
        return dataclasses.replace(state, state="failed", reason=reason, last_lines=tuple(run_log.last_lines(self.log)))

    def lost_state(self) -> State | None:
        """Return the stored state if the run has lost its supervisor; None for any other run.

        Raises FileNotFoundError if the run does not exist.
        """
        state = self._latest(self.stored_state())
        return state if state.is_orphaned else None

    def _latest(self, state: State) -> State:
        """Return `state`. If it is live but its supervisor is gone, return the stored state instead.

        The supervisor may have stored a final state before it exited.
        """
        return self.stored_state() if state.is_orphaned else state

    @property
    def is_watched(self) -> bool:
        """Return whether the scheduler watches the run's supervisor while the run is live, to restart the run.

        This is so if the run has restarts (`--restarts`), no custom launcher, and a spec that this master has accepted.
        The result does not depend on the run's state.
        """
        return self._restartable_spec() is not None

    @property
    def may_continue(self) -> bool:
        """Return whether the run continues automatically if its supervisor is lost now.

        Besides `is_watched`, a supervisor must have started it, a restart must be left, and no stop was requested.
        """
        spec = self._restartable_spec()
        if spec is None or self.stop_request.exists():
            return False
        times = self.course().get("times")
        return isinstance(times, dict) and "started" in times and len(self.restarts_made()) < spec.restarts

    def _restartable_spec(self) -> RunSpec | None:
        try:
            spec = trusted_spec.read(self.run_id)
        except (OSError, ValueError):
            return None
        return spec if spec.restarts and not spec.launcher else None

    @property
    def continues(self) -> bool:
        """Return whether the run has lost its supervisor and continues automatically.

        Raises FileNotFoundError if the run does not exist.
        """
        return self.lost_state() is not None and self.may_continue

    def describe_loss(self, state: State) -> str:
        """Return as text what happened to the supervisor of a lost run.

        The text includes the number of restarts before, if there were any.
        """
        ended_by = liveness.end_cause(state.run_id)
        cause = f"{SUPERVISOR_DIED}: {ended_by}" if ended_by else SUPERVISOR_DIED
        made = len(self.restarts_made())
        return f"{cause} (after {made} restart{'s' if made > 1 else ''})" if made else cause

    def mark_failed(self, reason: str) -> None:
        """Store that the run has failed, with `reason` and the last lines of its log.

        Raises FileNotFoundError if the run does not exist, and OSError.
        """
        with database.transaction():
            failed = dataclasses.replace(self.stored_state(), state="failed", reason=reason, updated=time.time())
            self.write_state(dataclasses.replace(failed, last_lines=tuple(run_log.last_lines(self.log))))
