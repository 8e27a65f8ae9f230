"""Which master is the current one: detect that another has replaced this one, and wait for the handover to this one.

Two masters can run at the same time: an old one that AWS considers lost, and its successor. They share the runs. A new
master writes its instance id to a file beside the runs. The old one then starts nothing more, and its supervisors exit
without any change to their runs, which belong to the new master.

Until a new master has taken over its predecessor's data (`agent.supervisor.handover`), the predecessor's runs look as
if they could not continue, and would be stored as failed. This module imports little, because the laptop waits for it.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Final

from agent.files.atomic_write import write_atomically
from agent.files.safe_read import read_regular
from agent.hardware.machine import NODE_CONF, read_node_conf
from agent.polling import wait_until

FILE: Final = ".master"
"""File beside the runs, with the instance id of the current master."""
TAKEN: Final = ".deepcdk/master"
"""File in the login user's home, with the id of the instance that has written FILE. An image may contain another id."""
INHERITED: Final = Path("/opt/deepcdk/inherited")
"""File with this instance's id. Root writes it when the master has the data, has found that there are none, or has
given up."""
PATIENCE_S: Final = 60.0
POLL_S: Final = 0.2
UNKNOWN: Final = (
    "this master is new and does not have the data of the previous master yet; repeat the command in a few minutes "
    "(`journalctl -u deepcdk-registry` on the master shows the cause)"
)


def this_master() -> str:
    """Return this node's instance id; without one, its host name."""
    return read_node_conf().get("instance_id") or socket.gethostname()


def take(root: Path) -> None:
    """Store once that this node is the current master of the runs in `root`. Raises OSError.

    Nothing is stored if `root` does not exist yet. Later calls do nothing, so a master that was replaced never becomes
    the current one again.
    """
    own, me = Path.home() / TAKEN, this_master()
    if _content(own) == me or not root.is_dir():
        return
    write_atomically(root / FILE, f"{me}\n", mode=0o644)
    own.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(own, f"{me}\n", mode=0o600)


def successor(root: Path) -> str | None:
    """Return the id of the master that has replaced this one; None if this node is, or has never been, the current one.

    A missing or malformed file counts as no successor, because root on a worker can damage it.
    """
    me, found = this_master(), _content(root / FILE)
    return found if found not in ("", me) and _content(Path.home() / TAKEN) == me else None


def replaced_message(other: str) -> str:
    """Return the message for a command on a master that was replaced by master `other`."""
    return f"{other} has replaced this master, {this_master()}; repeat the command to reach the new master"


def is_settled(conf: Path = NODE_CONF, inherited: Path = INHERITED) -> bool:
    """Return whether there is nothing to wait for: the data are taken over, or this node expects none.

    `conf` is the file with facts about this node, and `inherited` the file in which root reports the end of the
    handover.
    """
    facts = read_node_conf(conf)
    if not facts.get("handover_parameter"):
        return True
    try:
        return inherited.read_text(encoding="ascii", errors="replace").strip() == facts.get("instance_id")
    except FileNotFoundError:
        return False


def wait_until_settled(timeout_s: float = PATIENCE_S) -> bool:
    """Wait until `is_settled` returns True, but at most `timeout_s`; return its last result."""
    return wait_until(is_settled, timeout_s=timeout_s, poll_s=POLL_S)


def _content(path: Path) -> str:
    with contextlib.suppress(OSError):
        return read_regular(path, 256).decode("ascii", errors="replace").strip()
    return ""
