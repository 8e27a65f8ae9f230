"""Find in fetched files what git would take for a repository of its own.

A repository's configuration names programs, such as core.fsmonitor, which `git status` runs, and with it many a shell's
prompt. So a rank that leaves one among its results would run what it likes on the laptop, once someone goes there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def marks(directory: Path, earlier: Path) -> Iterator[Path]:
    """Yield the files and directories, relative to `directory`, that make a directory below it a repository to git.

    `earlier`: what the files will be merged into. Of a bare repository it is HEAD, without which git looks on
    (gitrepository-layout(5); setup.c, is_git_directory), or the rest where HEAD came earlier. A laptop's file system
    may not tell upper case from lower.
    """
    for parent, directories, files in os.walk(directory):
        here = Path(parent).relative_to(directory)
        dot_git = {name for name in (*directories, *files) if name.lower() == ".git"}
        directories[:] = [name for name in directories if name not in dot_git]
        yield from (here / name for name in sorted(dot_git))
        there = {name.lower() for name in (*directories, *files, *_names(earlier / here))}
        if {"head", "objects", "refs"} <= there or {"head", "commondir"} <= there:
            heads = [name for name in files if name.lower() in ("head", "commondir")]
            stores = [name for name in directories if name.lower() in ("objects", "refs")]
            yield from (here / name for name in sorted(heads or stores))


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208  # of which the names are enough
    except OSError:
        return []
