"""Write files and directories atomically; report a full disk by its path.

Our own, since the nodes' own Python has the standard library alone. Two other ways to write files
remain: `agent.staging.dataset_files.write_verified` streams thousands, reads each back and syncs none;
`payload.data.records.shards` streams the files of a shard and renames them together.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from agent.errors import ReportedError

MAKE_ROOM: Final = " (`fab clean` removes what no run needs)"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def full_disk(path: Path, text: str) -> str:
    """Return the host and the directory of a full disk if `text` reports one, else an empty string."""
    if not any(os.strerror(number) in text for number in _FULL):
        return ""
    free = _free_bytes(path)
    shown = "" if free is None else f", {free / 2**20:.1f} MiB are free"
    return f"the disk with {path} on {socket.gethostname()} is full{shown}; do: make room there{MAKE_ROOM}"


class StorageError(ReportedError, OSError):
    """Report a file that could not be written. Carries `path` and `free_bytes` (None where unknown)."""

    def __init__(self, path: Path, error: OSError) -> None:
        self.path = path
        self.free_bytes = _free_bytes(path)
        advice = ""
        if error.errno in _FULL:
            advice = f"; make room on {socket.gethostname()}{MAKE_ROOM}, then go on with --resume"
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
    """Make renames within a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: str | bytes, *, mode: int = 0o666) -> None:
    """Replace a file so that a reader sees the old content or the new one, never a part. Raises OSError.

    `mode`, less the umask, holds from the first byte on. A text is written in UTF-8.
    """
    data = content.encode() if isinstance(content, str) else content
    partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        partial.unlink(missing_ok=True)
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def open_to_append(path: Path, *, buffering: int = -1) -> IO[bytes]:
    """Open a file to append to it, made where it is missing; never through a link. Raises OSError (ELOOP) for one.

    Every rank can write where runs lie, and a link there would lead what the master appends into a file of its own.
    """
    return open(path, "ab", buffering=buffering, opener=no_follow)


def no_follow(path: str, flags: int) -> int:
    """Open a file, but no link in its place: an `opener` for files where another user may write. Raises OSError."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically, and durably: a crash of the machine does not undo it.

    Raises StorageError; the old content is then untouched.
    """
    with storing(path):
        write_atomically(path, content)
        sync_directory(path.parent)


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Yield a directory to fill. It is renamed to `path` at the end of the block, or removed after an error.

    `path` must not exist. Directories that replace another (checkpoints, saved models) or are merged into one (`fab
    fetch`) are renamed where they are written, as is what a push unpacks: its code is sent as text.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        partial.mkdir()
        yield partial
        partial.rename(path)
    except BaseException:
        import shutil  # Not at the top: it imports every compression, and few callers come here.

        shutil.rmtree(partial, ignore_errors=True)
        raise


def _free_bytes(path: Path) -> int | None:
    for directory in path.parents:
        with contextlib.suppress(OSError):
            state = os.statvfs(directory)
            return state.f_bavail * state.f_frsize
    return None
