"""Build something once and let all later processes use it, on one machine or on all that share a file system.

One process builds under a lock while the others wait. An unfinished build after a crash is never used.

A build's temporary files are on the same volume as its result, not in /tmp. On Amazon Linux 2023, Debian 13 and others,
/tmp is in memory, which wheels and a compiler's files would fill.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

from agent.files.file_lock import file_lock
from agent.files.safe_read import is_listed

COMPLETE: Final = ".complete"
"""The file that marks a directory as complete. It is written last."""

Built = TypeVar("Built")


def build_once(
    find: Callable[[], Built | None],
    build: Callable[[], Built],
    *,
    lock: Path,
    on_wait: Callable[[], None] | None = None,
) -> Built:
    """Return the result of `find` or, if it is None, of `build`, which is called under `lock`.

    `find` returns None if the result is missing or incomplete, and is called again under the lock. If another process
    is building, `on_wait` is called once, and this process waits. If the first call of `find` succeeds, no lock is
    needed, so the result can be on a read-only file system.
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
    """Fill `directory` once and mark it as complete; return whether this call filled it. Waits like `build_once`.

    `build` makes the directory and returns the text for the mark. The files of an interrupted build are removed first,
    or kept for `build` to continue with if `keep_partial` is set.
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
    """Return the path for temporary files of the build of `directory`: the same name with .tmp added."""
    return directory.with_name(f"{directory.name}.tmp")


@contextlib.contextmanager
def temporary_files_beside(directory: Path) -> Iterator[Path]:
    """Make `temporary_directory_of(directory)` for the block and yield its path; remove it afterwards.

    The caller must hold the lock of the build. The files of a killed build are removed first.
    """
    temporary = temporary_directory_of(directory)
    if temporary.exists():
        shutil.rmtree(temporary)
    temporary.mkdir(parents=True)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # Do not hide an error of the block; the next build retries this.


def with_temporary_files(environ: Mapping[str, str], temporary: Path) -> dict[str, str]:
    """Return `environ` with TMPDIR set to `temporary`, for pip, compilers and Python's tempfile.

    If that directory does not exist, TMPDIR is unchanged, because programs would ignore it.
    """
    return {**environ, **({"TMPDIR": os.fspath(temporary)} if temporary.is_dir() else {})}
