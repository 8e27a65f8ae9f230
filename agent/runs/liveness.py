"""Detect whether a process is alive: a run's supervisor, the holder of a task's nodes, or the scheduler.

The process holds a lock (flock) on a file on the master's own disk, which has the run's id as its name. The kernel
releases the lock when the process exits for any reason. A supervisor inherits the lock from the process that starts it,
so the lock is never free in between.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

from agent.files.file_lock import AlreadyLockedError
from agent.polling import wait_until

LOCKS: Final = ".deepcdk/locks"
"""Folder in the login user's home. Each run has a file with the id of the boot and the supervisor's pid."""
LOOKS_S: Final = 1.0
"""Maximum wait for a lock. A process that checks whether a lock is held takes it for a moment."""
_mine: dict[str, int] = {}
"""File descriptors of the locks that this process holds, by run id."""


def hold(run_id: str) -> None:
    """Take a run's lock until `let_go`, `forget` or the exit of this process.

    Waits up to LOOKS_S. Raises AlreadyLockedError if another process still holds the lock then.
    """
    path = _path(run_id)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    if not wait_until(lambda: _try_lock(descriptor, fcntl.LOCK_EX), timeout_s=LOOKS_S, poll_s=0.01):
        os.close(descriptor)
        raise AlreadyLockedError(f"another process already supervises run {run_id}; see `fab show {run_id}`")
    let_go(run_id)
    _mine[run_id] = descriptor
    os.truncate(descriptor, 0)
    os.write(descriptor, f"{_boot()}\n".encode())


def inherit(run_id: str, descriptor: int) -> None:
    """Take over a run's lock as its supervisor, and store this process's pid in the lock's file.

    `descriptor` was passed on by the process that started this one.
    """
    os.set_inheritable(descriptor, False)
    _mine[run_id] = descriptor
    os.write(descriptor, f"{os.getpid()}\n".encode())


def descriptor_of(run_id: str) -> int:
    """Return the file descriptor of a run's lock, for `inherit`.

    Raises KeyError if this process does not hold the lock.
    """
    return _mine[run_id]


def let_go(run_id: str) -> None:
    """Close a run's lock in this process, if it is open. A supervisor that has inherited the lock still holds it."""
    if (descriptor := _mine.pop(run_id, None)) is not None:
        os.close(descriptor)


def forget(run_id: str) -> None:
    """Release a run's lock if this process holds it, and remove its file, if there is one.

    Call this in a transaction, so that no process takes the lock.
    """
    let_go(run_id)
    _path(run_id).unlink(missing_ok=True)


def is_held(run_id: str) -> bool:
    """Return whether a process on this master, which may be this one, holds a run's lock."""
    try:
        with _path(run_id).open("rb") as file:
            return not _try_lock(file.fileno(), fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def beat(run_id: str) -> None:
    """Store that a run's supervisor works: set the modification time of its lock file to now.

    Does nothing without the file.
    """
    with contextlib.suppress(FileNotFoundError):
        os.utime(_path(run_id))


def last_beat(run_id: str) -> float:
    """Return the time of a run's last `beat` on this master, in seconds since 1970; 0 if it never ran here."""
    try:
        return _path(run_id).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def supervisor_pid(run_id: str) -> int | None:
    """Return the pid of a run's supervisor; None if its lock is free, or the supervisor has not started yet."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        pid = int(_path(run_id).read_text(encoding="ascii").split()[1])
        return pid if is_held(run_id) else None
    return None


def end_cause(run_id: str) -> str:
    """Return as text why a run's process is gone: the master was replaced or rebooted; "" if only the process exited.

    On a master without the run's lock file, the cause is that the master was replaced.
    """
    try:
        boot = _path(run_id).read_text(encoding="ascii", errors="replace").split("\n")[0]
    except FileNotFoundError:
        return "the master was replaced"
    return "" if boot in ("", _boot()) else "the master was rebooted"


def _path(run_id: str) -> Path:
    return Path.home() / LOCKS / run_id


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _try_lock(descriptor: int, kind: int) -> bool:
    """Try to lock a file without waiting. Return whether it worked; `kind` is LOCK_EX or LOCK_SH."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
