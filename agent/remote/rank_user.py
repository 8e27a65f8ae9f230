"""The user for ranks. It is not the login user, which owns the keys, the supervisor and the pushed code.

`stacks/scripts/boot.sh` creates the user at a node's boot, with the same user ID on all nodes, because NFS identifies
owners by number. The user has no password and no `sudo`. Only the master logs in as this user, with the cluster's key.
Root owns the user's home with that key, so a rank cannot change who may log in, nor the files that a shell reads first.
So ranks have a subdirectory, which they own, as `HOME`.
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
"""Contains the ID of the boot during which `stacks/scripts/firewall.sh` has loaded the rules for ranks."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NFS: Final = ("127.0.0.1", 2049)


class RankUserError(RuntimeError):
    """Report that a node lacks the user, the groups or the firewall for ranks."""


def check(node: str, remedy: str) -> None:
    """Raise RankUserError if this node lacks the user for ranks, or the user's ID is not RANK_UID.

    `node` and `remedy` are for the message.
    """
    try:
        uid = pwd.getpwnam(RANK_USER).pw_uid
    except KeyError:
        raise RankUserError(f"{node} has no user {RANK_USER} for ranks; do: {remedy}") from None
    if uid != RANK_UID:
        raise RankUserError(f"the user {RANK_USER} on {node} has the ID {uid} instead of {RANK_UID}; do: {remedy}")


def check_groups(master: str, remedy: str) -> None:
    """Raise RankUserError if this machine, the master, lacks the groups that separate the files of runs.

    `master` and `remedy` are for the message.
    """
    try:
        grp.getgrgid(RUN_GIDS[-1])
    except KeyError:
        raise RankUserError(f"{master} has no groups for runs ({RUN_GROUP}1 and so on); do: {remedy}") from None


def check_firewall(node: str, remedy: str) -> None:
    """Raise RankUserError if the firewall for ranks has not been loaded since this node booted.

    `node` and `remedy` are for the message.
    """
    try:
        loaded = FIREWALL_LOADED.read_text(encoding="utf-8")
    except OSError:
        loaded = ""
    if loaded != _BOOT_ID.read_text(encoding="utf-8"):
        raise RankUserError(f"{node} has no firewall between ranks and the file system's server; do: {remedy}")


def try_firewall() -> None:
    """Raise PermissionError if the user for ranks can send to this node's NFS port, which shows that rules are missing.

    The kernel fails with EPERM if a rule rejects a datagram. For other users this does nothing: the rules do not apply
    to them.
    """
    if os.getuid() != RANK_UID:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.sendto(b"", _NFS)
        except PermissionError:
            return
    raise PermissionError(
        f"{socket.gethostname()} has no firewall between ranks and the file system's server; do: "
        "`fab replace` this node"
    )


def home() -> Path:
    """Return the home directory that this process can write to.

    This is RANK_HOME for the user for ranks, and otherwise the user's own home.
    """
    return Path(RANK_HOME) if pwd.getpwuid(os.getuid()).pw_name == RANK_USER else Path.home()


def variables() -> dict[str, str]:
    """Return HOME, USER and LOGNAME of this process's user, to replace those of the launcher's user."""
    user = pwd.getpwuid(os.getuid()).pw_name
    return {"HOME": str(home()), "USER": user, "LOGNAME": user}


def make_temporary_directory() -> dict[str, str]:
    """Create the ranks' temporary directory and return it as TMPDIR; {} for other users. Raises OSError.

    It is in their home on the node's disk, because /tmp is in memory on Amazon Linux 2023 and Debian 13. It is removed
    with the rest of their home before the next run.
    """
    if os.getuid() != RANK_UID:
        return {}
    directory = Path(RANK_HOME) / RANK_TEMPORARY
    directory.mkdir(exist_ok=True)
    return {"TMPDIR": str(directory)}


def renounce_privileges() -> None:
    """Prevent this process and its children from gaining privileges, by `sudo` or other setuid programs.

    Raises OSError.
    """
    import ctypes  # Not at the top: the nodes' preparation imports this module too.

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise PermissionError(
            f"{socket.gethostname()} does not let ranks renounce the privileges of set-user-ID programs (prctl with "
            f"PR_SET_NO_NEW_PRIVS: {os.strerror(ctypes.get_errno())}); do: `fab replace` this node"
        )
