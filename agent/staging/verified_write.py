"""Write a data set's file atomically and verify it.

`agent.files.atomic_write` is for single files of a run: it keeps the content in memory and waits for the disk. Here,
thousands of files are streamed and read back, so they are not synced one by one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterable

from agent.staging.errors import CorruptingDiskError, dataset_error

_TOKENS = itertools.count()
_HERE = f"{os.uname().nodename}-"


def unique_token() -> str:
    """Return a name that is unique among all calls, threads, processes and nodes."""
    return f"{_HERE}{os.getpid()}-{threading.get_ident()}-{next(_TOKENS)}"


def thread_token() -> str:
    """Return a name that is unique to this thread among all nodes. It can be used for one file at a time."""
    return f"{_HERE}{os.getpid()}-{threading.get_ident()}"


def write_verified(temporary: str, target: str, blocks: Iterable[bytes]) -> None:
    """Write a file to `temporary`, verify it by reading it back, and rename it to `target`.

    The folder of `target` is made if necessary, that of `temporary` must exist. After an error, including one from
    `blocks`, `temporary` is removed and `target` is unchanged. Raises CorruptingDiskError, DiskFullError or another
    DatasetError.
    """
    try:
        try:
            file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
            try:
                os.fchmod(file, 0o644)
                _write_through(file, blocks, target)
            finally:
                os.close(file)
            _move(temporary, target)
        except OSError as error:
            raise dataset_error(error, target) from error
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108  # here and below: paths as text are faster for thousands of files
        raise


def _write_through(file: int, blocks: Iterable[bytes], target: str) -> None:
    """Write blocks to an open file and read each one back. Raises CorruptingDiskError if it differs."""
    at = 0
    for block in blocks:
        left = memoryview(block)
        while left:
            left = left[os.write(file, left) :]
        if os.pread(file, len(block), at) != block:
            raise CorruptingDiskError(
                f"{target}: the bytes read differ from the bytes written, so the disk may be faulty: `fab "
                "replace` this node"
            )
        at += len(block)


def _move(temporary: str, target: str) -> None:
    try:
        os.replace(temporary, target)  # noqa: PTH105
    except FileNotFoundError:
        os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
        os.replace(temporary, target)  # noqa: PTH105
