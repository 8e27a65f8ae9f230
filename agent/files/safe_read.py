"""Read files that others write: another node on a shared file system, or a rank.

An NFS client caches failed lookups. A file that was missing can stay missing here for a minute after another node has
written it (nfs(5), `lookupcache`; the default of `acdirmax` is 60 s). A directory listing asks the server. So a file
from another node is first searched for in its directory's listing, and opened by name only if it is listed.

A file that others can create is read only if it is a regular file: not a link, not a pipe that blocks its reader, and
not larger than a limit.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Final

MAX_BYTES: Final = 8 << 20
"""Maximum size of a file to read. Parsed as JSON, a file takes up to thirty times its size in memory."""

NOT_READ: Final = (errno.EINVAL, errno.ELOOP, errno.EFBIG)
"""Error numbers of `read_regular` for a pipe, a link, and a file that is too large."""
MAX_ENTRIES: Final = 200_000
"""Maximum number of directory entries to read. A rank can create millions."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raises OSError for anything else, including links."""
    return open(path, "rb", opener=_regular_only)


def _regular_only(path: str, flags: int) -> int:
    # The file object owns the descriptor once this has returned. Ctrl-C therefore never closes it twice.
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: Path, most_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file. Raises OSError if it is not regular or larger than `most_bytes`."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise OSError(errno.EFBIG, f"the file has {size} bytes, but the limit is {most_bytes}", str(path))
        return file.read(size)  # read() allocates this many bytes first.


def names_in(directory: Path) -> frozenset[str]:
    """Return the names in a directory, or an empty set if it does not exist or is not a directory.

    Raises OSError if the directory cannot be read.
    """
    try:
        return frozenset(os.listdir(directory))  # noqa: PTH208  # only names are needed, of thousands of files
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()


def is_listed(path: Path) -> bool:
    """Return whether the listing of its directory contains `path`; False if the directory does not exist.

    In a directory with more than MAX_ENTRIES names, the file may be looked up by its name instead.
    """
    try:
        with os.scandir(path.parent) as entries:
            if any(entry.name == path.name for entry in itertools.islice(entries, MAX_ENTRIES)):
                return True
            return next(entries, None) is not None and os.path.lexists(path)
    except (FileNotFoundError, NotADirectoryError):
        return False


def count_files(directory: Path) -> tuple[int, int]:
    """Return the number of regular files below a directory and their total bytes, among its first MAX_ENTRIES entries.

    Links are not followed. Unreadable entries are skipped: another node may be removing them, and a rank can nest
    folders until their path is too long.
    """
    files = size = entries_seen = 0
    folders = [str(directory)]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                entries_seen += 1
                if entries_seen > MAX_ENTRIES:
                    return files, size
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        size += entry.stat(follow_symlinks=False).st_size
                        files += 1
    return files, size


def read_listed(path: Path, most_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a file that another node may just have written. Does not wait for the file.

    The file is opened only if its directory's listing contains it, because an NFS client caches failed lookups. Raises
    FileNotFoundError if it is not listed, or OSError like `read_regular`.
    """
    if not is_listed(path):
        raise FileNotFoundError(f"{path} does not exist")
    return read_regular(path, most_bytes)


def listed_below(directory: Path, paths: Iterable[str]) -> frozenset[str]:
    """Return the given paths, relative to `directory`, that exist. Each folder is listed once, from the top down."""
    known: dict[str, frozenset[str]] = {}

    def names(folder: str) -> frozenset[str]:
        if folder not in known:
            above, _, name = folder.rpartition("/")
            is_there = name in names(above) if folder else is_listed(directory)
            known[folder] = names_in(directory / folder) if is_there else frozenset()
        return known[folder]

    return frozenset(path for path in paths if path.rpartition("/")[2] in names(path.rpartition("/")[0]))
