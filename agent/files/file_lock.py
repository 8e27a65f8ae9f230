"""A lock between processes on one machine, or on all machines that share a file system. Standard library only."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path

from agent.files.atomic_write import no_follow


class AlreadyLockedError(OSError):
    """Report a lock that another process holds."""


@contextlib.contextmanager
def file_lock(
    path: Path, *, on_wait: Callable[[], None] | None = None, wait: bool = True, shared: bool = False
) -> Iterator[None]:
    """Hold a lock on the file `path` during the block. Wait if another process holds it.

    `on_wait` is called once before the wait. Without `wait`, AlreadyLockedError is raised instead. Several processes
    can hold a `shared` lock at the same time. The kernel releases the lock when the process exits for any reason, so a
    crash needs no cleanup. On NFS (EFS) the lock also works between machines. The file is never removed: otherwise two
    processes could lock two different files with the same name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with open(path, "a+b", opener=no_follow) as file:  # NFS grants a shared lock only on a file that is open to read.
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise AlreadyLockedError(f"another process has locked {path}") from None
            if on_wait is not None:
                on_wait()
            fcntl.flock(file, kind)
        yield
