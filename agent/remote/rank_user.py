"""The user that ranks run as: not the login user, which owns the keys, the supervisor, and what was pushed.

A node's boot makes the user (`stacks/scripts/node.sh`) with one number on all nodes, for over NFS a file's owner is a
number. It has no password and no `sudo`. The master alone logs in as it, with the cluster's key, which root keeps in
the user's home: a rank cannot change who is admitted, nor what a shell reads first. So `HOME` of ranks is a directory
below it, which is theirs.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Final

from agent.spec.nodes import RANK_HOME, RANK_UID, RANK_USER

_NO_NEW_PRIVILEGES: Final = 38
"""PR_SET_NO_NEW_PRIVS of Linux's prctl."""


class RankUserError(RuntimeError):
    """Report a node that has no user for ranks, or another one of its name."""


def check(node: str, remedy: str) -> None:
    """Raise RankUserError where this node has not the user for ranks; `node` and `remedy` are for the message."""
    try:
        uid = pwd.getpwnam(RANK_USER).pw_uid
    except KeyError:
        raise RankUserError(f"{node} has no user {RANK_USER} for ranks; do: {remedy}") from None
    if uid != RANK_UID:
        raise RankUserError(
            f"the user {RANK_USER} of {node} has the number {uid}, and must have {RANK_UID}; do: {remedy}"
        )


def home() -> Path:
    """Return the directory that this process may write in as its user's home."""
    return Path(RANK_HOME) if pwd.getpwuid(os.getuid()).pw_name == RANK_USER else Path.home()


def variables() -> dict[str, str]:
    """Return the variables of this process's user: a launcher hands on those of its own, on the master."""
    user = pwd.getpwuid(os.getuid()).pw_name
    return {"HOME": str(home()), "USER": user, "LOGNAME": user}


def renounce_privileges() -> None:
    """Let neither this process nor what it becomes or starts gain rights, by `sudo` or another setuid program.

    Raises OSError.
    """
    import ctypes  # Not at the top: the nodes' preparation imports this module too.

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no_new_privs cannot be set: {os.strerror(number)}")
