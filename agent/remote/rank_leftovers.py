"""Find and end what earlier runs have left on a node: processes of the user for ranks, and secrets.

    NODE_PYTHON -m agent.remote.rank_leftovers RUNS     # as that user, on a node that has no rank of its run yet

A node takes part in one run at a time. So all that belongs to any run is left over, and so is what no connection has
started: a program may have changed the environment by which the processes of a run are known. A command that runs over
a connection of its own, as `fab stage-data --to local` does, goes on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.deadline import wait_until
from agent.remote import processes
from agent.remote.rank_user import home
from agent.remote.secret_files import TAKEN
from agent.spec.nodes import NODE_PYTHON, RANK_UID

CLEARING_S: Final = 10.0
"""How long processes that were killed may take to go."""
_PROC: Final = Path("/proc")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Process:
    """What anybody may know of a process."""

    uid: int
    parent: int


def are_there(proc: Path = _PROC) -> bool:
    """Return whether the user for ranks has processes here; any user may ask, but only that one finds the leftovers."""
    return any(each.uid == RANK_UID for each in _listed(proc).values())


def command(runs_root: str) -> list[str]:
    """Build the command that ends what is left on a node; it runs as the user for ranks, in the agent's tree."""
    return [NODE_PYTHON, "-m", "agent.remote.rank_leftovers", runs_root]


def clear(runs_root: str, timeout_s: float) -> list[int]:
    """Remove what earlier runs have left of this user; return the processes that stay."""
    shutil.rmtree(home() / TAKEN, ignore_errors=True)

    def are_gone() -> bool:
        others = find(runs_root)
        for pid in others:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return not others

    wait_until(are_gone, timeout_s=timeout_s, poll_s=0.05)
    return find(runs_root)


def find(runs_root: str, proc: Path = _PROC) -> list[int]:
    """Return the processes of this user that earlier runs have left here."""
    listed = _listed(proc)
    own = [pid for pid, each in listed.items() if each.uid == os.getuid() and pid != os.getpid()]
    of_runs = {process.pid for process in processes.processes(runs_root, proc)}
    left = [pid for pid in own if pid in of_runs or not _has_connection(pid, listed)]
    return [pid for pid in left if not _is_service_manager(pid, proc)]


def _listed(proc: Path) -> dict[int, _Process]:
    found = {}
    for entry in proc.iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError, KeyError, ValueError, IndexError):  # it ended meanwhile
            # Not by the owner of its directory, which is root for a process that others may not inspect.
            lines = (entry / "status").read_text(encoding="utf-8", errors="replace").splitlines()
            fields = dict(line.partition(":")[::2] for line in lines)
            found[int(entry.name)] = _Process(uid=int(fields["Uid"].split()[0]), parent=int(fields["PPid"]))
    return found


def _has_connection(pid: int, listed: Mapping[int, _Process]) -> bool:
    """Return whether a process of another user is above one: SSH's, which is root's, while the connection lives.

    What outlives its connection is process 1's.
    """
    own, seen = listed[pid].uid, {pid}
    while (above := listed.get(pid)) is not None and above.uid == own:
        pid = above.parent
        if pid in seen:
            return False
        seen.add(pid)
    return pid > 1 and pid in listed


def _is_service_manager(pid: int, proc: Path) -> bool:
    """Return whether a process is the user's own systemd, which starts with a login and ends some seconds after it."""
    try:
        return (proc / str(pid) / "exe").readlink().name == "systemd"
    except OSError:
        return False


def main(argv: Sequence[str]) -> int:
    """Run the command line."""
    if left := clear(argv[0], CLEARING_S):
        print(f"processes of an earlier run stay: {', '.join(map(str, left))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
