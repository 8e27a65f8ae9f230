"""A directory for the temporary files of a build, on the volume of what it builds.

Not /tmp: Amazon Linux 2023, Debian 13 and others have it in memory, which wheels and a compiler's files would fill.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path


def temporary_directory_of(directory: Path) -> Path:
    """Return the path for the temporary files of the build of `directory`: beside it, under its name with .tmp."""
    return directory.with_name(f"{directory.name}.tmp")


@contextlib.contextmanager
def temporary_files_beside(directory: Path) -> Iterator[Path]:
    """Make `temporary_directory_of(directory)` for the block; return its path, and remove it afterwards.

    The caller has the lock of the build. What a killed build left is removed first.
    """
    temporary = temporary_directory_of(directory)
    if temporary.exists():
        shutil.rmtree(temporary)
    temporary.mkdir(parents=True)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # An error of the block counts more; the next build removes it.


def with_temporary_files(environ: Mapping[str, str], temporary: Path) -> dict[str, str]:
    """Return `environ` with TMPDIR, by which pip, compilers and Python's tempfile choose where to write.

    Without that directory, outside of `temporary_files_beside`, TMPDIR stays as it is: programs would ignore it.
    """
    return {**environ, **({"TMPDIR": os.fspath(temporary)} if temporary.is_dir() else {})}
