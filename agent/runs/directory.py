"""The directory of a run on the shared file system: its files, and its stored state."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import fnmatch
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from agent.files.atomic_write import full_disk, move_directory, no_follow, open_to_append, write_atomically
from agent.files.listing import NOT_READ, is_listed, names_in, read_regular
from agent.runs import database, going_on, liveness, run_log
from agent.runs.state import State, SupersededError
from agent.spec import json_text
from agent.spec.states import MAX_STOP_GRACE_S, QUEUED, STOP_GRACE_S
from agent.spec.trial import Trial

_LOOKS: Final = 5
_LOOK_S: Final = 0.02
ORIGIN_FILE: Final = "origin.json"
_MAX_NAME: Final = 256
LINKED: Final = "linked"
APART: Final = "apart"
SUPERVISOR_DIED: Final = "supervisor died"


def _read_replaced(path: Path) -> bytes:
    """Read a file that other processes replace. Raises FileNotFoundError, and OSError like `read_regular`.

    If another file was renamed to this path a moment ago, an NFS client may fail to find it. So the read is repeated.
    """
    for _ in range(_LOOKS - 1):
        with contextlib.suppress(FileNotFoundError):
            return read_regular(path)
        if not is_listed(path):
            break
        time.sleep(_LOOK_S)
    return read_regular(path)


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
        """Return who started the run, from its origin; None if this is unknown."""
        try:
            found = json_text.parse(read_regular(self.path / ORIGIN_FILE))["started_by"]
            return {str(key): str(value)[:_MAX_NAME] for key, value in found.items()} or None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def trial(self) -> dict[str, Any] | None:
        """Return the run's place in a sweep, from its spec, as JSON values; None for a run without a sweep."""
        try:
            found = Trial.from_document(json_text.parse(read_regular(self.spec))["trial"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        document = dataclasses.asdict(found)
        document.pop("plan")
        return document if found.sweep else None

    @property
    def log(self) -> Path:
        return self.path / "launcher.log"

    @property
    def launched(self) -> Path:
        """Return the path of launch.json, which contains the launcher's exact command and environment."""
        return self.path / "launch.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    def stalled(self, attempt: int, node: str) -> Path:
        """Return the path of a node's file with the numbers of its stuck ranks."""
        return self.path / f"stalled-{attempt}-{node}"

    def links(self, kind: str, attempt: int, node: str) -> Path:
        """Return the path of a node's report on the connections of its ranks. `kind` is LINKED or APART."""
        return self.path / f"{kind}-{attempt}-{node}"

    @property
    def preflight(self) -> Path:
        return self.path / "preflight.json"

    @property
    def stop_request(self) -> Path:
        return self.path / going_on.STOP_FILE

    def write(self, path: Path, content: str | bytes) -> None:
        """Write a file of the run atomically. Raises OSError."""
        move_directory(path)
        write_atomically(path, content)

    def discard(self, path: Path) -> None:
        """Remove a file of the run if there is one. Raises OSError."""
        move_directory(path)
        path.unlink(missing_ok=True)

    def stop_grace_s(self) -> float:
        """Return the seconds from SIGTERM to SIGKILL for the ranks, from the stop request or by default."""
        try:
            grace_s = float(json_text.parse(read_regular(self.stop_request))["grace_s"])
        except (OSError, ValueError, KeyError, TypeError):
            return STOP_GRACE_S
        return grace_s if 0 <= grace_s <= MAX_STOP_GRACE_S else STOP_GRACE_S

    @property
    def group(self) -> int:
        """Return the id of the directory's group. Its members may use the directory while the directory is open."""
        return self.path.stat().st_gid

    def close_to_ranks(self) -> None:
        """Prevent ranks from reading or writing the directory of a run that is waiting or has ended."""
        self.path.chmod(0o700)

    @contextlib.contextmanager
    def _changing_state(self) -> Iterator[None]:
        """Lock the states of all runs, on all nodes, so that no state changes between a check and a write."""
        with open_to_append(self.path.parent / ".states") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def write_state(self, state: State) -> None:
        """Write state.json, no matter which process owns the stored state."""
        with self._changing_state():
            self._write_state(state)

    def write_own_state(self, state: State) -> None:
        """Write state.json as the run's supervisor. Raises SupersededError if the run belongs to another process now.

        Before a final state is written, the directory is closed to ranks, because another run may start right after it.
        """
        with self._changing_state():
            self.check_owner(state.owner)
            if state.has_ended:
                with contextlib.suppress(OSError):
                    self.close_to_ranks()
            self._write_state(state)

    def check_owner(self, owner: str) -> None:
        """Raise SupersededError if the stored state belongs to another process or is not live.

        A missing or malformed state is ignored, because a rank may have damaged it.
        """
        with contextlib.suppress(ValueError, FileNotFoundError):
            stored = self.stored_state()
            if not stored.is_live or stored.owner != owner:
                raise SupersededError(self.run_id, f"{stored.state} (owner: {stored.owner})")

    def _write_state(self, state: State) -> None:
        """Write state.json atomically. On a full disk, overwrite the existing file with a shortened state."""
        path = self.path / "state.json"
        try:
            write_atomically(path, json.dumps(state.to_document(), indent=1))
        except OSError as error:
            full = full_disk(self.path.parent, str(error))
            if not full or not path.exists():
                raise
            reason = f"{state.reason[:200]}; {full}" if state.reason else full
            short = dataclasses.replace(state, reason=reason, last_lines=())
            with open(path, "r+b", buffering=0, opener=no_follow) as file:
                # One write, padded to the file's size: a reader never sees the end of the old text.
                file.write(json.dumps(short.to_document()).encode().ljust(path.stat().st_size))

    def effective_state(self) -> State:
        """Return the current state of the run. It differs from the stored state in these cases.

        A live run was updated at its last heartbeat. A run that lost its supervisor is `starting` if it continues
        automatically, and `failed` otherwise. A queued run is `failed` if this master's queue does not contain it.
        Nothing is written; `mark_failed` stores a failure. Raises like `stored_state`.
        """
        state = self._present_state()
        if state.is_live:
            state = dataclasses.replace(state, updated=max(state.updated, liveness.last_beat(self.run_id)))
        if state.state == QUEUED and not database.rows("SELECT 1 FROM queue WHERE run_id = ?", self.run_id):
            reason = f"it is missing from this master's queue; to queue it again: `fab resume {self.run_id}`"
            return dataclasses.replace(state, state="failed", reason=reason)
        if not state.is_orphaned:
            return state
        reason = self.cause_of_death(state)
        if going_on.may_go_on(self.path):
            return dataclasses.replace(state, state="starting", reason=f"{reason}; the run continues automatically")
        return dataclasses.replace(state, state="failed", reason=reason, last_lines=tuple(run_log.last_lines(self.log)))

    def lost_state(self) -> State | None:
        """Return the stored state if the run has lost its supervisor; None for any other run."""
        state = self._present_state()
        return state if state.is_orphaned else None

    @property
    def goes_on(self) -> bool:
        """Return whether the run has lost its supervisor and continues automatically. Raises like `stored_state`."""
        return self.lost_state() is not None and going_on.may_go_on(self.path)

    def cause_of_death(self, state: State) -> str:
        """Return what happened to the supervisor of a lost run, and after how many restarts, as text."""
        ended_by = liveness.end_cause(state.run_id)
        cause = f"{SUPERVISOR_DIED}: {ended_by}" if ended_by else SUPERVISOR_DIED
        made = len(going_on.restarts_made(self.path))
        return f"{cause} (after {made} restart{'s' if made > 1 else ''})" if made else cause

    def _present_state(self) -> State:
        state = self.stored_state()
        # Since the file was read, the supervisor may have stored a final state, or another process taken over the run.
        return self.stored_state() if state.is_orphaned else state

    def take_over(self, state: State, *, of: str) -> bool:
        """Write state.json for a run that process `of` has lost. Return False if `of` no longer owns a live state."""
        with self._changing_state():
            stored = self.stored_state()
            if not stored.is_live or stored.owner != of:
                return False
            self._write_state(state)
        return True

    def mark_failed(self, reason: str, *, of: str | None = None) -> bool:
        """Store that the run has failed, with the last lines of its log. Return whether this was stored.

        With `of`, it is stored only if that process still owns a live state: the run may have been resumed in the
        meantime. Raises like `stored_state`, and OSError.
        """
        with self._changing_state():
            stored = self.stored_state()
            if of is not None and (not stored.is_live or stored.owner != of):
                return False
            self.close_to_ranks()
            state = dataclasses.replace(stored, state="failed", reason=reason, updated=time.time())
            self._write_state(dataclasses.replace(state, last_lines=tuple(run_log.last_lines(self.log))))
        return True

    def stored_state(self) -> State:
        """Read state.json. Raises FileNotFoundError if it is missing, and ValueError if it is malformed."""
        path = self.path / "state.json"
        try:
            text = _read_replaced(path)
        except OSError as error:
            if error.errno not in NOT_READ:
                raise
            raise ValueError(f"cannot read {path}, the state of a run: {error.strerror}") from None
        try:
            state = State.from_document(json_text.parse(text))
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ValueError(f"{path} is not a valid state of a run: {error}") from None
        if state.run_id != self.run_id:
            raise ValueError(f"{path} contains the state of another run, {state.run_id!a}")
        return state

    def shown_state(self) -> State:
        """Return the current state for a list of runs. If it cannot be read, the run is shown as failed."""
        try:
            return self.effective_state()
        except (OSError, ValueError) as error:
            changed = max(0.0, self.path.stat().st_mtime)
            reason = f"its state cannot be read: {error}"
            return State(run_id=self.run_id, state="failed", owner="", started=changed, updated=changed, reason=reason)
