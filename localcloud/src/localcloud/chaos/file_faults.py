"""Faults of the shared file systems: a full disk, and a flipped bit."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from localcloud.chaos.attempt import Attempt, Done, NoTargetError

FILLER: Final = ".localcloud-chaos"
"""The file that fills a file system."""
_SMALLEST_BYTES: Final = 4096
"""A page, which is the unit of a file system in memory."""


def fill_disk(attempt: Attempt) -> Done:
    """Fill the shared file systems with one file, until the fault is repaired.

    Raises NoTargetError if their size is not limited, or if an earlier fault still fills them.
    """
    target, root = attempt.unless_busy("disk"), attempt.cloud.shared_file_system()
    if root.stat().st_dev == root.parent.stat().st_dev:
        raise NoTargetError("the size of the shared file systems is not limited; start the cloud with --efs-size")
    path = root / FILLER
    try:
        filled = _fill(path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return Done(
        what=f"filled the shared file systems with {filled >> 20} MiB",
        target=target,
        undo=lambda: path.unlink(missing_ok=True),
    )


def _fill(path: Path) -> int:
    """Create a file that takes all free space of its file system; return its size in bytes.

    Other processes may write at the same time.
    """
    filled = 0
    with path.open("wb") as file:
        state = os.fstatvfs(file.fileno())
        step = max(state.f_bavail * state.f_frsize, _SMALLEST_BYTES)
        while step >= _SMALLEST_BYTES:
            try:
                os.posix_fallocate(file.fileno(), filled, step)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                step //= 2
            else:
                filled += step
    return filled


def flip_bit(attempt: Attempt) -> Done:
    """Flip one bit in the newest file that matches `Patterns.flip`. The fault's random place selects the bit.

    Empty files and symbolic links are skipped. Raises NoTargetError without a pattern or a file.
    """
    if not attempt.patterns.flip:
        raise NoTargetError("--flip is not set; it selects the files to damage")
    root = attempt.cloud.shared_file_system()
    found = []
    for path in root.glob(attempt.patterns.flip):
        with contextlib.suppress(OSError):  # removed meanwhile
            state = path.lstat()
            if path.is_file() and state.st_size and not _is_linked(path, root):
                found.append((state.st_mtime_ns, path, state.st_size))
    if not found:
        raise NoTargetError(f"no file matches --flip {attempt.patterns.flip!r}; empty files and links do not count")
    _, path, size = max(found)
    place = int(attempt.fault.place * size * 8)
    try:
        with path.open("r+b") as file:
            file.seek(place // 8)
            byte = file.read(1)
            file.seek(place // 8)
            file.write(bytes([byte[0] ^ 1 << place % 8]))
    except (FileNotFoundError, IndexError) as error:
        raise NoTargetError(f"{path.relative_to(root)} was removed or truncated before its bit was flipped") from error
    return Done(what=f"flipped bit {place} of {path.relative_to(root)}")


def creation_check(root: Path, pattern: str) -> Callable[[], bool]:
    """Return a function that checks for a new file or directory that matches the glob `pattern` below `root`.

    It returns True while such a path exists that did not exist when `creation_check` was called.
    """
    before = _found(root, pattern)
    return lambda: bool(_found(root, pattern) - before)


def _found(root: Path, pattern: str) -> set[Path]:
    while True:
        with contextlib.suppress(FileNotFoundError):  # a directory was removed during the search
            return set(root.glob(pattern))


def _is_linked(path: Path, root: Path) -> bool:
    """Return whether `path` or one of its parents below `root` is a symbolic link.

    A host's link may point to any file of this machine.
    """
    return any(one.is_symlink() for one in (path, *path.parents) if one != root and one.is_relative_to(root))
