"""Detect what ranks of earlier runs have left on a node: processes, shared memory, files, secrets.

A rank can inspect, change and kill each process of its user. So only root removes leftovers, with a script on the
node's own disk (`stacks/scripts/rank_leftovers.sh`), which spares no process of that user.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agent.spec.nodes import RANK_HOME, RANK_TEMPORARY, RANK_UID

CLEARING_S: Final = 10.0
"""How long the processes that the script kills may take to exit."""
KEPT: Final = ("data", ".cache/deepcdk/records")
"""Directories in the home of ranks that are kept for later runs: copies of data, and indices of records."""
_ROOT: Final = Path("/")
_OPEN: Final = ("tmp", "var/tmp", "dev/shm", "dev/mqueue", "run/lock", "var/crash")  # only inspected
_IPC: Final = "proc/sysvipc"


def processes_are_there(root: Path = _ROOT) -> bool:
    """Return whether the user for ranks has processes on this node. `root` is the root of the file system."""
    for entry in (root / "proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError, KeyError, ValueError, IndexError):  # it has just exited
            # The owner of the directory is not sufficient: it is root if others may not inspect the process.
            lines = (entry / "status").read_text(encoding="utf-8", errors="replace").splitlines()
            fields = dict(line.partition(":")[::2] for line in lines)
            if str(RANK_UID) in fields["Uid"].split():
                return True
    return False


def files_are_there(root: Path = _ROOT) -> bool:
    """Return whether the user for ranks has files, message queues or shared memory that could affect a later run.

    `root` is the root of the file system. A directory of the ranks that cannot be listed counts as such files.
    """
    home = root / RANK_HOME.lstrip("/")
    return _has_more_than(home, KEPT) or any(_has_files(root / place) for place in _OPEN) or _has_ipc(root / _IPC)


def _has_more_than(directory: Path, kept: tuple[str, ...]) -> bool:
    """Return whether a directory contains more than the directories `kept` and an empty directory for temporary files.

    `kept` contains relative paths, also of several parts. Return True if the directory cannot be listed, and False if
    it is missing.
    """
    try:
        for entry in os.scandir(directory):
            below = tuple(path.removeprefix(f"{entry.name}/") for path in kept if path.startswith(f"{entry.name}/"))
            if not entry.is_dir(follow_symlinks=False):
                return True
            if entry.name not in kept and not below and not (entry.name == RANK_TEMPORARY and _is_empty(entry.path)):
                return True
            if below and _has_more_than(Path(entry.path), below):
                return True
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _is_empty(directory: str) -> bool:
    """Return whether a directory is empty and can be listed."""
    try:
        return next(Path(directory).iterdir(), None) is None
    except OSError:
        return False


def _has_files(directory: Path) -> bool:
    """Return whether ranks have created anything in a directory, or in its world-writable subdirectories."""
    with contextlib.suppress(OSError):  # missing, or readable only by its owner
        for entry in os.scandir(directory):
            found = entry.stat(follow_symlinks=False)
            is_open = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_IWOTH
            if found.st_uid == RANK_UID or (is_open and _has_files(Path(entry.path))):
                return True
    return False


def _has_ipc(directory: Path) -> bool:
    """Return whether the ranks' user owns or has created System V shared memory, semaphores or message queues."""
    return any(RANK_UID in owners for path in directory.glob("*") for owners in _owners(path))


def _owners(path: Path) -> Iterator[set[int]]:
    """Yield owner and creator in each line of a /proc/sysvipc table. Its first line contains the column names."""
    with path.open(encoding="ascii") as table:
        columns = table.readline().split()
        for line in table:
            fields = dict(zip(columns, line.split(), strict=False))
            yield {int(fields["uid"]), int(fields["cuid"])}
