"""Read and remove files of ranks that the login user cannot access.

Only the user for ranks can do this. The commands run as that user over SSH to the master itself, which needs no `sudo`.
They use only the master's own programs, and nothing from the shared file system.
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
"""Time limit for one command. Tens of thousands of files over NFS take minutes."""
Run = Callable[[Sequence[str], float], Completed]


def make_readable(directory: RunDirectory, run: Run = execute) -> str:
    """Let the login user read all files of the ranks. Return a message with a path that is still unreadable, or "".

    For example, a program that creates a file with `mkstemp` and renames it leaves a file that only its user can read.
    """
    if not _unreadable(directory, run):
        return ""
    run(_as_rank(f"chmod -fR u+rX,a+rX -- {shlex.quote(str(directory.path))}", directory.group), TIMEOUT_S)
    left = _unreadable(directory, run)
    return f"cannot read {left}" if left else ""


def remove(path: Path, run: Run = execute) -> None:
    """Remove a run's directory, including the ranks' files. Raises OSError if something cannot be removed."""
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
    """Return a path in a run's directory that this user cannot read; "" if all can be read."""
    unseen = ("(", "!", "-readable", "-o", "-type", "d", "!", "-executable", ")")
    words = ("find", str(directory.path), "!", "-type", "l", *unseen, "-print", "-quit")
    # `find` also prints error lines about directories that it cannot enter. They do not begin with the path.
    lines = [line for line in run(words, TIMEOUT_S).output.splitlines() if line.startswith(f"{directory.path}/")]
    return lines[0] if lines else ""


def _as_rank(script: str, gid: int) -> list[str]:
    """Build the command that runs a script as the user for ranks, with the group of a run."""
    return [SSH, *AS_RANK, MASTER_NAME, shlex.join(in_group(gid, script)) if gid in RUN_GIDS else script]
