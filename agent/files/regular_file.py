"""Read a file that others can make: no link to another one, no pipe that keeps its reader waiting, no giant."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 64 << 20


def read_regular(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file. Raises OSError for what is none, or is larger than `most_bytes`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if status.st_size > most_bytes:
            raise OSError(errno.EFBIG, f"it has {status.st_size} bytes, and may have {most_bytes}", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(most_bytes)
    finally:
        os.close(descriptor)
