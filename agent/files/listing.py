"""Read files that others write: of another node on a shared file system, or of a rank.

An NFS client keeps what it learned: a file that it did not find may stay missing here for a minute after another node
has written it (nfs(5), `lookupcache`; the default of `acdirmax` is 60 s). A listing asks the server. So a file of
another node is looked for in the listing of its directory first, and by its name only once it is there.

A file that others can make is read only if it is regular: no link to another one, no pipe that keeps its reader
waiting, no giant.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Final

MOST_BYTES: Final = 8 << 20
"""Parsed as JSON, a file takes up to thirty times as much memory."""


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
    """Return whether the listing of a directory has the file `path`; False where there is no such directory."""
    return path.name in names_in(path.parent)


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
