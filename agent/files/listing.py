"""Read files that others write: of another node on a shared file system, or of a rank.

An NFS client keeps what it learned: a file that it did not find may stay missing here for a minute after another node
has written it (nfs(5), `lookupcache`; the default of `acdirmax` is 60 s). A listing asks the server. So a file of
another node is looked for in the listing of its directory first, and by its name only once it is there.

A file that others can make is read only if it is regular: no link to another one, no pipe that keeps its reader
waiting, no giant.
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

MOST_BYTES: Final = 8 << 20
"""Parsed as JSON, a file takes up to thirty times as much memory."""

MAX_ENTRIES: Final = 200_000
"""Names of files and directories that are listed; a rank can make millions."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to read it. Raises OSError for what is none, and for a link to one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file. Raises OSError as `open_regular`, and for more than `most_bytes`."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise OSError(errno.EFBIG, f"it has {size} bytes, and may have {most_bytes}", str(path))
        return file.read(size)  # It takes the memory for as many bytes first.


def names_in(directory: Path) -> frozenset[str]:
    """List a directory; nothing where there is none."""
    try:
        return frozenset(os.listdir(directory))  # noqa: PTH208  # thousands of them, of which the names are enough
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()


def is_listed(path: Path) -> bool:
    """Return whether the listing of a directory has the file `path`; False where there is no such directory.

    After MAX_ENTRIES names it asks for the file itself.
    """
    try:
        with os.scandir(path.parent) as entries:
            if any(entry.name == path.name for entry in itertools.islice(entries, MAX_ENTRIES)):
                return True
            return next(entries, None) is not None and os.path.lexists(path)
    except (FileNotFoundError, NotADirectoryError):
        return False


def count_files(directory: Path) -> tuple[int, int]:
    """Return how many plain files are below a directory, and their bytes, of the first MAX_ENTRIES entries.

    Links are not followed. What cannot be read is left out: another node may remove it meanwhile, and a rank can nest
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


def read_listed(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a file that another node may just have written. Raises OSError, as `read_regular`."""
    if not is_listed(path):
        raise FileNotFoundError(f"{path} is not there")
    return read_regular(path, most_bytes)


def listed_below(directory: Path, paths: Iterable[str]) -> frozenset[str]:
    """Return those of these paths, relative to a directory, that are listed: each folder once, from the top down."""
    known: dict[str, frozenset[str]] = {}

    def names(folder: str) -> frozenset[str]:
        if folder not in known:
            above, _, name = folder.rpartition("/")
            is_there = name in names(above) if folder else is_listed(directory)
            known[folder] = names_in(directory / folder) if is_there else frozenset()
        return known[folder]

    return frozenset(path for path in paths if path.rpartition("/")[2] in names(path.rpartition("/")[0]))
