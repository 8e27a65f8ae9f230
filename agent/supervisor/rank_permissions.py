"""The ranks' access to a run's directory; read and remove files of ranks that the login user cannot access.

Only the user for ranks can do the latter. The commands run as that user over SSH to the master itself, which needs no
`sudo`. They use only the master's own programs, and nothing from the shared file system.
"""

import contextlib
import grp
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from agent.remote.ssh import AS_RANK, SSH, Completed, execute
from agent.runs import database
from agent.runs.run_directory import RunDirectory
from agent.spec.nodes import MASTER_NAME, RUN_GIDS, RUN_GROUP

TIMEOUT_S: Final = 600.0
"""Time limit for one command. Tens of thousands of files over NFS take minutes."""
Run = Callable[[Sequence[str], float], Completed]


def open_to_ranks(directory: RunDirectory, live: Callable[[], Collection[str]] = tuple) -> None:
    """Give a run's directory a group that no other live run has, so that only this run's ranks can add files.

    The ranks of all runs have the same user, but the ranks of each live run have another group. The sticky bit prevents
    ranks from replacing the login user's files. `live` returns the ids of the live runs. It is called in a database
    transaction, so that two runs that start together get different groups. On a machine without these groups, the
    directory stays closed to ranks. Raises OSError, also if all groups are in use.
    """
    with database.transaction():
        taken = set()
        for run_id in {*live()} - {directory.run_id}:
            with contextlib.suppress(OSError):
                taken.add(directory.path.with_name(run_id).stat().st_gid)
        if directory.group not in RUN_GIDS or directory.group in taken:
            free = [gid for gid in RUN_GIDS[:-1] if gid not in taken]
            if not free:
                again = f"`fab resume {directory.run_id}`"
                raise OSError(f"{len(taken)} runs are live, the maximum; wait until a run ends, then {again}")
            if not _change_group(directory.path, free[0]):
                return
        directory.path.chmod(0o1770)


def make_readable(directory: RunDirectory, run: Run = execute) -> str:
    """Make all files of the ranks readable for the login user.

    Return "cannot read PATH" for a path that is still unreadable, or "" if there is none. For example, a program that
    creates a file with `mkstemp` and renames it leaves a file that only its user can read.
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
        if _change_group(path, gid):
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
    return [SSH, *AS_RANK, MASTER_NAME, shlex.join(_in_group(gid, script)) if gid in RUN_GIDS else script]


def _in_group(gid: int, script: str) -> list[str]:
    """Build the command that runs a script with a run's group as its primary group.

    NFS sends at most 16 supplementary groups to the server, so membership alone is not enough.
    """
    return ["sg", f"{RUN_GROUP}{gid - RUN_GIDS.start + 1}", "-c", script]


def _change_group(path: Path, gid: int) -> bool:
    """Change the group of this user's directory to the group with the id `gid`.

    Return False, and change nothing, if the machine has no such group. Raises OSError.
    """
    try:
        os.chown(path, -1, gid, follow_symlinks=False)
    except PermissionError:
        try:
            grp.getgrgid(gid)
        except KeyError:
            return False
        command = _in_group(gid, shlex.join(["chgrp", "-h", "--", f"{gid}", f"{path}"]))
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            group = f"{RUN_GROUP}{gid - RUN_GIDS.start + 1}"
            raise PermissionError(
                f"cannot change the group of {path} to {group}: "
                f"{done.stderr.strip() or f'exit status {done.returncode}'}; check on the master with `id` that the "
                "login user is in this group"
            ) from None
    return True
