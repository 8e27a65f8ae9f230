"""A file that appears whole or not at all, and what may keep it from that."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import threading
from collections.abc import Iterable
from pathlib import Path


class DatasetError(RuntimeError):
    """Report data that cannot be put or found there."""

    kind = ""
    """A word for the remedy."""


class DamagedFileError(DatasetError):
    """Report a file whose bytes are not those that its manifest lists."""

    kind = "damaged"


class CorruptingDiskError(DamagedFileError):
    """Report a disk that gives back other bytes than were written."""


class DiskFullError(DatasetError):
    """Report a disk without room."""

    kind = "full"


def explain(error: OSError, path: Path | str) -> DatasetError:
    """Return what an error of the system means for whoever stages."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(f"{path}: {error.strerror}")
    return DatasetError(f"{path}: {error.strerror or error}")


_TOKENS = itertools.count()
_HERE = f"{os.uname().nodename}-"


def unique_token() -> str:
    """Return a name that no other thread or process on any node has."""
    return f"{_HERE}{os.getpid()}-{threading.get_ident()}-{next(_TOKENS)}"


def thread_token() -> str:
    """Return a name that no other thread or process on any node has; this one has it for one file at a time."""
    return f"{_HERE}{os.getpid()}-{threading.get_ident()}"


def write_verified(temporary: str, target: str, blocks: Iterable[bytes]) -> None:
    """Write a file, compare what reads back, and let it appear at `target` only then, in a new directory if need be.

    Whatever `blocks` raises passes, and leaves nothing. Raises CorruptingDiskError, DiskFullError, DatasetError.
    """
    try:
        try:
            file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                os.fchmod(file, 0o644)
                _write_through(file, blocks, target)
            finally:
                os.close(file)
            _move(temporary, target)
        except OSError as error:
            raise explain(error, target) from error
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108  # here and below: thousands of them, and paths as text are quicker
        raise


def _write_through(file: int, blocks: Iterable[bytes], target: str) -> None:
    at = 0
    for block in blocks:
        left = memoryview(block)
        while left:
            left = left[os.write(file, left) :]
        if os.pread(file, len(block), at) != block:
            raise CorruptingDiskError(f"{target} reads back other bytes than were written: a bad disk?")
        at += len(block)


def _move(temporary: str, target: str) -> None:
    try:
        os.replace(temporary, target)  # noqa: PTH105
    except FileNotFoundError:
        os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
        os.replace(temporary, target)  # noqa: PTH105
