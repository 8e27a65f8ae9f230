"""Say why a launcher ended other than well: a node that was taken away, a rank that ended first, or a bare status."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from payload.launch import Launch, Node

LEAVING: Final = Path(".cluster") / "leaving"
"""On the shared file system: what a node that is about to end has read of the reason, by its instance's id."""
_FIRST: Final = re.compile(
    r"The first process to do so was:\s+Process name: (?:\[\[\d+,\d+\],)?(\d+)\]?\s+Exit code:\s+(-?\d+)\n"
)
"""As horovodrun says it over Gloo, and mpirun."""
_SIGNALLED: Final = re.compile(r"process rank (\d+) with PID \d+ on node \S+ exited on signal (\d+)")
"""mpirun's words alone, as the next one."""
_SILENT: Final = re.compile(r"lost communication with a remote daemon.*?Remote daemon: \S+ on node (\S+)", re.DOTALL)


def reason(launch: Launch, status: int, log: str) -> str:
    """Return why the launcher of a run ended with a status other than 0; `log` is the end of what it wrote."""
    if gone := leaving(launch):
        return f"{gone}; `fab resume {launch.run_id}` goes on once its group has put another in its place"
    return silent(log) or first_rank(launch.hosts, log) or f"the launcher ended with {said(status)}"


def leaving(launch: Launch) -> str:
    """Name the hosts of a run that are being taken away, with what they were told; "" where none is."""
    found = []
    for host in launch.hosts:
        try:
            text = (Path(launch.efs_mount) / LEAVING / host.instance_id).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        # Behind the colon EC2 says it in JSON.
        found.append(f"{host.name} leaves the cluster ({text.strip().partition(': ')[0]})")
    return ", ".join(found)


def silent(log: str) -> str:
    """Name the host that mpirun can no longer reach, with the remedy; "" where it misses none."""
    if not (told := _SILENT.findall(log)):
        return ""
    node = told[-1]
    return f"{node} no longer answers; `fab replace {node.removeprefix('deeplearning-')}`, then `fab resume`"


def first_rank(hosts: Sequence[Node], log: str) -> str:
    """Say which rank ended first, as Horovod's launcher tells at its end; "" where it does not."""
    told = _FIRST.findall(log) or [(rank, f"-{number}") for rank, number in _SIGNALLED.findall(log)]
    if not told:
        return ""
    rank, status = map(int, told[-1])
    places = [host.name for host in hosts for _ in range(host.slots)]
    where = f" on {places[rank]}" if rank < len(places) else ""
    return f"rank {rank}{where} ended first, with {said(status)}"


def said(status: int) -> str:
    """Write the status of a process; one below 0 is a signal's."""
    return f"signal {-status}" if status < 0 else f"status {status}"
