"""Write files and directories atomically; report the path of a full disk.

Standard library only. Two modules write files in other ways. `agent.staging.verified_write.write_verified` writes
thousands of files, reads each one back and syncs none. `payload.data.records.shards` writes the files of a shard and
renames them together.
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

MAKE_ROOM: Final = " (`fab clean` removes unused files)"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def reports_full_disk(text: str) -> bool:
    """Return whether a text contains the system's message for a full disk or an exhausted quota."""
    return any(os.strerror(number) in text for number in _FULL)


def describe_full_disk(path: Path, text: str) -> str:
    """Return a message that the disk with `path` on this host is full if `text` reports a full disk, else "".

    The message contains the free space and advice.
    """
    if not reports_full_disk(text):
        return ""
    free = _free_bytes(path)
    shown = "" if free is None else f", {free / 2**20:.1f} MiB are free"
    return f"the disk with {path} on {socket.gethostname()} is full{shown}; do: free space on it{MAKE_ROOM}"


class StorageError(ReportedError, OSError):
    """Report a file that could not be written. Carries `path`, `free_bytes` (None if unknown), and `what`, the message
    without the advice to repeat the command.
    """

    def __init__(self, path: Path, error: OSError) -> None:
        self.path = path
        self.free_bytes = _free_bytes(path)
        advice = f"free space on {socket.gethostname()}{MAKE_ROOM}"
        if error.errno not in _FULL and not reports_full_disk(str(error)):  # TensorFlow's errors have no number
            advice = "check the directory and its permissions"
        free = "" if self.free_bytes is None else f" ({self.free_bytes / 2**20:.1f} MiB free)"
        self.what = f"cannot write {path}: {error.strerror or error}{free}; {advice}"
        super().__init__(f"{self.what}, then repeat the command; to continue training: `fab resume`, or add --resume")


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Raise StorageError for `path` if there is an OSError in the block."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(path, error) from error


def sync_directory(path: Path) -> None:
    """Make earlier renames within a directory durable: they survive a crash of the machine. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: str | bytes, *, mode: int = 0o666) -> None:
    """Replace a file such that readers see either the old or the new content, never a part. Raises OSError.

    The file has the permissions `mode`, less the umask, from the start. Its folder must exist. Text is encoded as
    UTF-8. After a crash of the machine, the file may have the old content (see `replace_file`).
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


def move_directory(path: Path) -> None:
    """Rename a directory that a rank has created in place of a file, because a file cannot replace a directory.

    The new name is NAME.moved- and eight random digits. Does nothing for a file, a link or a missing path.
    """
    if path.is_dir() and not path.is_symlink():
        path.rename(path.with_name(f"{path.name}.moved-{os.urandom(4).hex()}"))


def open_to_append(path: Path, *, buffering: int = -1) -> IO[bytes]:
    """Open a file to append to it, or create it. A symbolic link is never followed: OSError (ELOOP) is raised.

    Every rank can write to the directory of runs. A link there could redirect the master's output to another file.
    """
    return open(path, "ab", buffering=buffering, opener=no_follow)


def no_follow(path: str, flags: int) -> int:
    """Open a file and return its descriptor; raise OSError if it is a symbolic link.

    Pass this to `open` as its `opener`, for files in directories that other users can write to.
    """
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically and durably: it survives a crash of the machine.

    Raises StorageError, and the file then has the old content. Only if syncing the directory failed, it has the new
    content, which a crash may undo.
    """
    with storing(path):
        write_atomically(path, content)
        sync_directory(path.parent)


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Yield a new directory to fill. It is renamed to `path` at the end of the block, or removed after an error.

    `path` must not exist, but its parent must. Code that replaces or merges directories renames them itself: for
    checkpoints, saved models and `fab fetch`. So does a push, because its code is sent to the master as text.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        partial.mkdir()
        yield partial
        partial.rename(path)
    except BaseException:
        import shutil  # Not at the top: it imports all compression modules, and this branch is rare.

        shutil.rmtree(partial, ignore_errors=True)
        raise


def _free_bytes(path: Path) -> int | None:
    """Return the free bytes on the disk with `path`, or with its nearest parent that exists; None if unknown."""
    for place in (path, *path.parents):
        with contextlib.suppress(OSError):
            state = os.statvfs(place)
            return state.f_bavail * state.f_frsize
    return None
