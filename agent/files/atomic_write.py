"""Files that are written whole or not at all, and errors that say which disk is full."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from agent.errors import ReportedError


class StorageError(ReportedError, OSError):
    """Report a file that could not be written. Carries `path` and `free_bytes` (None where unknown)."""

    def __init__(self, path: Path, error: OSError) -> None:
        self.path = path
        self.free_bytes = _free_bytes(path)
        advice = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = "; make room there, then go on with --resume"
        free = "" if self.free_bytes is None else f" ({self.free_bytes / 2**20:.1f} MiB free)"
        super().__init__(f"cannot write {path}: {error.strerror or error}{free}{advice}")


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into a StorageError that names `path`."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(path, error) from error


def sync_directory(path: Path) -> None:
    """Make renames within a directory last."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that a reader, even after a crash, sees the old content or the new one, never a part.

    Raises StorageError; the old content is then untouched.
    """
    partial = path.with_name(f".{path.name}.partial")
    with storing(path):
        try:
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
            sync_directory(path.parent)
        finally:
            partial.unlink(missing_ok=True)


def _free_bytes(path: Path) -> int | None:
    for directory in path.parents:
        with contextlib.suppress(OSError):
            return shutil.disk_usage(directory).free
    return None
