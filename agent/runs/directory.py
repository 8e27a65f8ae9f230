"""The directory of a run on the shared file system: its files, its state, and the ranks' access to it."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import fnmatch
import grp
import json
import os
import re
import secrets
import shlex
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Final

from agent.files.atomic_write import no_follow, open_to_append, write_atomically
from agent.files.listing import is_listed, names_in, open_regular, read_regular
from agent.runs import database, going_on, liveness
from agent.spec import json_text
from agent.spec.nodes import RUN_GIDS, RUN_GROUP
from agent.spec.run import RunSpec
from agent.spec.states import FINAL_STATES, LAST_TIME, LIVE_STATES, MAX_STOP_GRACE_S, QUEUED, STATES, STOP_GRACE_S
from agent.spec.trial import Trial

DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
NOT_READ: Final = (errno.EINVAL, errno.ELOOP, errno.EFBIG)
"""Error numbers of `read_regular` for a pipe, a link, and a file that is too large."""
DISK_FULL_REASON: Final = "the shared file system is full (`fab clean` removes unused files)"
_LOOKS: Final = 5
_LOOK_S: Final = 0.02
ORIGIN_FILE: Final = "origin.json"
_MAX_NAME: Final = 256
LINKED: Final = "linked"
APART: Final = "apart"
MAX_LOG_BYTES: Final = 128 << 20
KEPT_LOG_BYTES: Final = 32 << 20
"""Size of the end of a truncated log that is kept in launcher-1.log."""
_CUT: Final = re.compile(rb"\[supervisor\] (\d{1,12}) earlier lines were removed")
_MAX_CUT: Final = 200
SUPERVISOR_DIED: Final = "supervisor died"
_LAST_BYTES: Final = 1 << 18
"""Number of bytes to read from the end of the log for its last lines."""
# The traceback shows where horovodrun noticed that a rank had failed. It would displace the rank's own lines before it.
_LAUNCHERS_TRACEBACK: Final = re.compile(
    r"^Traceback \(most recent call last\):\n(?: .*\n)+RuntimeError: Horovod detected .*\n", flags=re.MULTILINE
)


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
    """When the state was last stored. The supervisor stores it every few seconds as a heartbeat."""
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


def _end_of(path: Path, size: int) -> bytes:
    """Return the last `size` bytes of a regular file. Raises OSError."""
    with open_regular(path) as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - size))
        return file.read(size)


def in_group(gid: int, script: str) -> list[str]:
    """Build the command that runs a script with a run's group as its primary group.

    NFS sends at most 16 supplementary groups to the server, so membership alone is not enough.
    """
    return ["sg", f"{RUN_GROUP}{gid - RUN_GIDS.start + 1}", "-c", script]


def change_group(path: Path, gid: int) -> bool:
    """Change the group of this user's directory. Return False if the machine has no such group. Raises OSError."""
    try:
        os.chown(path, -1, gid, follow_symlinks=False)
    except PermissionError:
        try:
            grp.getgrgid(gid)
        except KeyError:
            return False
        command = in_group(gid, shlex.join(["chgrp", "-h", "--", f"{gid}", f"{path}"]))
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(errno.EPERM, f"group {gid}: {done.stderr.strip()}", f"{path}") from None
    return True


def _move_directory(path: Path) -> None:
    """Rename a directory that a rank has created in place of a file. A file cannot replace a directory."""
    if path.is_dir() and not path.is_symlink():
        path.rename(path.with_name(f"{path.name}.moved-{secrets.token_hex(4)}"))


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
    def earlier_log(self) -> Path:
        """Return the path of the file with the last lines before those of a truncated log."""
        return self.path / "launcher-1.log"

    def cut_log(self, most_bytes: int = MAX_LOG_BYTES, kept_bytes: int = KEPT_LOG_BYTES) -> bool:
        """Truncate a log of more than `most_bytes`, and keep its end in `earlier_log`. Return whether it was truncated.

        Processes append to the log, so they continue in the truncated file. Its first line states how many lines were
        before it. Raises OSError.
        """
        with open(self.log, "r+b", buffering=0, opener=no_follow) as file:
            if os.fstat(file.fileno()).st_size <= most_bytes:
                return False
            count = self.lines_before(file.read(_MAX_CUT))
            file.seek(0)
            while block := file.read(1 << 20):
                count += block.count(b"\n")
            size = file.tell()
            file.seek(max(0, size - kept_bytes))
            kept = b"".join(iter(lambda: file.read(min(1 << 20, size - file.tell())), b""))
            whole, newline, rest = kept.rpartition(b"\n")
            self.write(self.earlier_log, whole.partition(b"\n")[2] + newline)
            rest += b"".join(iter(lambda: file.read(1 << 20), b""))  # written since
            file.truncate(0)
        with open_to_append(self.log) as appended:
            limit = f"{most_bytes >> 20} MiB" if most_bytes >> 20 else f"{most_bytes} bytes"
            note = f"[supervisor] {count} earlier lines were removed, because the log had reached {limit};"
            appended.write(f"{note} {self.earlier_log.name} contains the last of them\n".encode() + rest)
        return True

    def lines_before(self, beginning: bytes | None = None) -> int:
        """Return how many lines were cut off before the log's first line, which states it; 0 for a complete log.

        `beginning` is the beginning of the log or of a line, if it was read before.
        """
        if beginning is None:
            with contextlib.suppress(OSError), open_regular(self.log) as file:
                beginning = file.read(_MAX_CUT)
        found = _CUT.match(beginning or b"")
        return int(found[1]) if found else 0

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
        _move_directory(path)
        write_atomically(path, content)

    def discard(self, path: Path) -> None:
        """Remove a file of the run if there is one. Raises OSError."""
        _move_directory(path)
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

    def open_to_ranks(self, live: Callable[[], Collection[str]] = tuple) -> None:
        """Allow the ranks of this run, but not those of other runs, to add files to the directory.

        The ranks of all runs have the same user. The ranks of one run have a group that no other live run has. The
        sticky bit, as on /tmp, prevents ranks from replacing the login user's files. `live` returns the ids of the live
        runs. It is called under the lock: if two runs start together, the second one sees the group of the first. On a
        machine without these groups the directory stays closed. Raises OSError, also if all groups are in use.
        """
        with self._changing_state():
            taken = set()
            for run_id in {*live()} - {self.run_id}:
                with contextlib.suppress(OSError):
                    taken.add(self.path.with_name(run_id).stat().st_gid)
            if self.group not in RUN_GIDS or self.group in taken:
                free = [gid for gid in RUN_GIDS[:-1] if gid not in taken]
                if not free:
                    raise OSError(errno.EAGAIN, f"{len(taken)} runs are live, the maximum; wait until a run ends")
                if not change_group(self.path, free[0]):
                    return
            self.path.chmod(0o1770)

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
            if error.errno not in DISK_FULL or not path.exists():
                raise
            full = f"{DISK_FULL_REASON}, at {self.path.parent}"
            reason = f"{state.reason[:200]}; {full}" if state.reason else full
            short = dataclasses.replace(state, reason=reason, last_lines=())
            with open(path, "r+b", buffering=0, opener=no_follow) as file:
                # One write, padded to the file's size: a reader never sees the end of the old text.
                file.write(json.dumps(short.to_document()).encode().ljust(path.stat().st_size))

    def effective_state(self) -> State:
        """Return the current state of the run. It differs from the stored state in three cases.

        A run that lost its supervisor is `starting` if it continues automatically, and `failed` otherwise. A queued run
        is `failed` if this master's queue does not contain it. Nothing is written; `mark_failed` stores a failure.
        Raises like `stored_state`.
        """
        state = self._present_state()
        if state.state == QUEUED and not database.rows("SELECT 1 FROM queue WHERE run_id = ?", self.run_id):
            reason = f"it is missing from this master's queue; to queue it again: `fab resume {self.run_id}`"
            return dataclasses.replace(state, state="failed", reason=reason)
        if not state.is_orphaned:
            return state
        reason = self.cause_of_death(state)
        if going_on.may_go_on(self.path):
            return dataclasses.replace(state, state="starting", reason=f"{reason}; the run continues automatically")
        return dataclasses.replace(state, state="failed", reason=reason, last_lines=tuple(self.last_lines()))

    def lost_state(self) -> State | None:
        """Return the stored state if the run has lost its supervisor; None for any other run."""
        state = self._present_state()
        return state if state.is_orphaned else None

    @property
    def has_lost_supervisor(self) -> bool:
        """Return whether the stored state is live although the supervisor is gone."""
        return self.lost_state() is not None

    @property
    def goes_on(self) -> bool:
        """Return whether the run has lost its supervisor and continues automatically. Raises like `stored_state`."""
        return self.has_lost_supervisor and going_on.may_go_on(self.path)

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
            self._write_state(dataclasses.replace(state, last_lines=tuple(self.last_lines())))
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

    def last_lines(
        self, count: int = 20, *, rank: int | None = None, size: int = _LAST_BYTES, text: str | None = None
    ) -> list[str]:
        """Return the last `count` lines in the last `size` bytes of launcher.log, without the launcher's own traceback.

        `rank` leaves out the lines of other ranks, which print errors after they lose a failed rank. `text` contains
        these bytes, if they were read before.
        """
        text = self.last_text(size) if text is None else text
        if len(text.encode()) >= size:  # its first line is cut
            text = text.partition("\n")[2]
        text = _LAUNCHERS_TRACEBACK.sub("", text)
        others = "" if rank is None else rf"\[(?!{rank}\])\d{{1,9}}\]<std"
        lines = text.splitlines()
        return [line for line in lines if not (others and re.match(others, line))][-count:]

    def last_text(self, size: int) -> str:
        """Return the last `size` bytes of launcher.log; "" if it is missing, or a link or a pipe.

        Otherwise, a rank could replace it with a link to the master's private key, and find the key in state.json.
        """
        try:
            text = _end_of(self.log, size)
            if len(text) < size and self.lines_before(text[:_MAX_CUT]):
                text = _end_of(self.earlier_log, size - len(text)) + text
            return text.decode("utf-8", errors="replace")
        except OSError as error:
            if error.errno not in (errno.ENOENT, *NOT_READ):
                raise
            return ""
