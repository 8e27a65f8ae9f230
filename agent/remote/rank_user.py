"""The user that ranks run as: not the login user, which owns the keys, the supervisor, and what was pushed.

A node's boot makes the user (`stacks/scripts/node.sh`) with one number on all nodes, for over NFS a file's owner is a
number. It has no password and no `sudo`. The master alone logs in as it, with the cluster's key, which root keeps in
the user's home: a rank cannot change who is admitted, nor what a shell reads first. So `HOME` of ranks is a directory
below it, which is theirs.
"""

from __future__ import annotations

import grp
import os
import pwd
import socket
from pathlib import Path
from typing import Final

from agent.spec.nodes import RANK_HOME, RANK_TEMPORARY, RANK_UID, RANK_USER, RUN_GIDS, RUN_GROUP

_NO_NEW_PRIVILEGES: Final = 38
"""PR_SET_NO_NEW_PRIVS of Linux's prctl."""


FIREWALL_LOADED: Final = Path("/run/deepcdk-firewall")
"""Holds the id of the boot in which `stacks/scripts/firewall.sh` has loaded the rules for ranks."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NFS: Final = ("127.0.0.1", 2049)


class RankUserError(RuntimeError):
    """Report a node without the user for ranks or without the firewall for ranks."""


def check(node: str, remedy: str) -> None:
    """Raise RankUserError if this node lacks the user for ranks; `node` and `remedy` are for the message."""
    try:
        uid = pwd.getpwnam(RANK_USER).pw_uid
    except KeyError:
        raise RankUserError(f"{node} has no user {RANK_USER} for ranks; do: {remedy}") from None
    if uid != RANK_UID:
        raise RankUserError(
            f"the user {RANK_USER} of {node} has the number {uid}, and must have {RANK_UID}; do: {remedy}"
        )


def check_groups(master: str, remedy: str) -> None:
    """Raise RankUserError if the master lacks the groups that keep runs apart."""
    try:
        grp.getgrgid(RUN_GIDS[-1])
    except KeyError:
        raise RankUserError(f"{master} has no groups {RUN_GROUP}1 and so on for runs; do: {remedy}") from None


def check_firewall(node: str, remedy: str) -> None:
    """Raise RankUserError if no firewall for ranks was loaded since this node booted."""
    try:
        loaded = FIREWALL_LOADED.read_text(encoding="utf-8")
    except OSError:
        loaded = ""
    if loaded != _BOOT_ID.read_text(encoding="utf-8"):
        raise RankUserError(
            f"{node} has not loaded the firewall that keeps ranks from the file system's server; do: {remedy}"
        )


def try_firewall() -> None:
    """Raise PermissionError if the user for ranks can send to the NFS port of this node, and so to any other.

    The kernel answers EPERM to a datagram that its rules reject. Other users are not tried: no rule is for them.
    """
    if os.getuid() != RANK_UID:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.sendto(b"", _NFS)
        except PermissionError:
            return
    raise PermissionError(
        f"no firewall keeps ranks of {socket.gethostname()} from the file system's server; do: `fab replace` this node"
    )


def home() -> Path:
    """Return the directory that this process may write in as its user's home."""
    return Path(RANK_HOME) if pwd.getpwuid(os.getuid()).pw_name == RANK_USER else Path.home()


def variables() -> dict[str, str]:
    """Return the variables of this process's user: a launcher hands on those of its own, on the master."""
    user = pwd.getpwuid(os.getuid()).pw_name
    return {"HOME": str(home()), "USER": user, "LOGNAME": user}


def temporary_files() -> dict[str, str]:
    """Return TMPDIR of ranks after making it; nothing for other users. Raises OSError.

    It is in their home, on the node's disk, because /tmp of Amazon Linux 2023 and Debian 13 is in memory. What ranks
    leave there is removed with the rest of their home before the next run.
    """
    if os.getuid() != RANK_UID:
        return {}
    directory = Path(RANK_HOME) / RANK_TEMPORARY
    directory.mkdir(exist_ok=True)
    return {"TMPDIR": str(directory)}


def renounce_privileges() -> None:
    """Let neither this process nor what it becomes or starts gain rights, by `sudo` or another setuid program.

    Raises OSError.
    """
    import ctypes  # Not at the top: the nodes' preparation imports this module too.

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no_new_privs cannot be set: {os.strerror(number)}")
