"""A lock between processes, on one machine or on all that share a file system.

Our own, since the nodes' own Python has the standard library alone.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path

from agent.files.atomic_write import no_follow


class AlreadyLockedError(OSError):
    """Report a lock that another process has."""


@contextlib.contextmanager
def file_lock(
    path: Path, *, on_wait: Callable[[], None] | None = None, wait: bool = True, shared: bool = False
) -> Iterator[None]:
    """Lock the file `path` during the block; call `on_wait` once if another process has the lock.

    Without `wait` it raises AlreadyLockedError then. Several processes can have a `shared` lock at once.

    The kernel releases the lock when the process ends, however it ends: there is nothing to clean up after a crash. On
    NFS (EFS) it also works between machines. The file stays: if it were removed, two processes could lock two files of
    one name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with open(path, "a+b", opener=no_follow) as file:  # NFS gives a shared lock only to a file that is open to read.
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise AlreadyLockedError(f"another process has locked {path}") from None
            if on_wait is not None:
                on_wait()
            fcntl.flock(file, kind)
        yield
