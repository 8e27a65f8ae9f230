"""What the login user cannot do with the files of ranks: read all of them, remove them, and go on with its own.

The master's own programs do it as the user for ranks, over SSH to the master itself, which needs no `sudo`. Nothing
that lies on the shared file system is run for it.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from agent.remote.command import AS_RANK, SSH, Completed, execute
from agent.runs.directory import RunDirectory, change_group, in_group
from agent.spec.nodes import MASTER_NAME, RUN_GIDS

TIMEOUT_S: Final = 600.0
"""Tens of thousands of files over NFS take minutes."""
Run = Callable[[Sequence[str], float], Completed]


def make_readable(directory: RunDirectory, run: Run = execute) -> str:
    """Let the login user read what the ranks left, whatever modes they gave it; return what is wrong where it may not.

    A program that writes a file by `mkstemp`, and renames it, leaves one that its user alone can read.
    """
    if not _unreadable(directory, run):
        return ""
    run(_as_rank(f"chmod -fR u+rX,a+rX -- {shlex.quote(str(directory.path))}", directory.group), TIMEOUT_S)
    left = _unreadable(directory, run)
    return f"{left} cannot be read" if left else ""


def remove(path: Path, run: Run = execute) -> None:
    """Remove a run's directory, with what ranks have made in it. Raises OSError where something stays."""
    path.chmod(0o700)
    try:
        shutil.rmtree(path)
    except PermissionError:
        quoted, gid = shlex.quote(str(path)), RUN_GIDS[-1]
        if change_group(path, gid):
            path.chmod(0o1770)
        run(_as_rank(f"chmod -fR u+rwX -- {quoted}; find {quoted} -mindepth 1 -delete", gid), TIMEOUT_S)
        shutil.rmtree(path)


def _unreadable(directory: RunDirectory, run: Run) -> str:
    """Return one path below a run's directory that this user cannot read, "" without one."""
    unseen = ("(", "!", "-readable", "-o", "-type", "d", "!", "-executable", ")")
    words = ("find", str(directory.path), "!", "-type", "l", *unseen, "-print", "-quit")
    # A directory that it cannot enter find complains of, on a line of its own.
    lines = [line for line in run(words, TIMEOUT_S).output.splitlines() if line.startswith(f"{directory.path}/")]
    return lines[0] if lines else ""


def _as_rank(script: str, gid: int) -> list[str]:
    """Build the command that runs a script with the user of ranks and the group of a run."""
    return [SSH, *AS_RANK, MASTER_NAME, shlex.join(in_group(gid, script)) if gid in RUN_GIDS else script]
