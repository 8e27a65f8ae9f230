"""Build something once and let every later process use it, on one machine or on all that share a file system.

One process builds under a lock while the others wait; what a crash leaves unfinished is not taken for a result.

A build's temporary files are on the volume of what it builds. Not in /tmp: Amazon Linux 2023, Debian 13 and others have
it in memory, which wheels and a compiler's files would fill.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

from agent.files.file_lock import file_lock
from agent.files.listing import is_listed

COMPLETE: Final = ".complete"
"""The file that marks a complete directory. It is written last."""

Built = TypeVar("Built")


def build_once(
    find: Callable[[], Built | None],
    build: Callable[[], Built],
    *,
    lock: Path,
    on_wait: Callable[[], None] | None = None,
) -> Built:
    """Return what `find` finds, or else build it under `lock`; call `on_wait` once if another process is building.

    `find` returns None for what is missing or incomplete. It is called again under the lock. What it finds at once
    needs no lock, and may be on a read-only file system.
    """
    if (found := find()) is not None:
        return found
    with file_lock(lock, on_wait=on_wait):
        return found if (found := find()) is not None else build()


def build_directory_once(
    directory: Path,
    build: Callable[[], str],
    *,
    lock: Path,
    on_wait: Callable[[], None] | None = None,
    keep_partial: bool = False,
) -> bool:
    """Fill `directory` once and mark it complete; return whether this call has filled it.

    `build` makes the directory and returns the text of the mark. What an interrupted build left is removed first, or
    with `keep_partial` left for `build` to continue with.
    """

    def fill() -> bool:
        if directory.exists() and not keep_partial:
            shutil.rmtree(directory)
        text = build()
        (directory / COMPLETE).write_text(text, encoding="utf-8")
        return True

    return build_once(lambda: False if is_complete(directory) else None, fill, lock=lock, on_wait=on_wait)


def is_complete(directory: Path) -> bool:
    """Return whether `build_directory_once` has filled a directory, on this node or another."""
    return is_listed(directory) and is_listed(directory / COMPLETE)


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
    """Return `environ` with TMPDIR, where pip, compilers and Python's tempfile write.

    Without that directory, outside of `temporary_files_beside`, TMPDIR stays as it is: programs would ignore it.
    """
    return {**environ, **({"TMPDIR": os.fspath(temporary)} if temporary.is_dir() else {})}
