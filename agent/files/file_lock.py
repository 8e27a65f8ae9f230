"""Let one process at a time, on one machine or on all that share a file system, do a piece of work."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def file_lock(path: Path, *, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock `path` for the time of the block; call `on_wait` once when another process has it.

    The kernel gives the lock back when its holder ends, however it ends: nothing is left to clean up after a crash.
    Over NFS (EFS) it holds between machines too. The file itself stays, since removing it would let two processes hold
    locks on two files of one name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is not None:
                on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
