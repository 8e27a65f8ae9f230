"""The processes of a host, as seen from this machine: all in the PID namespace of the host's first process."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Final

RANK_VARIABLES: Final = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "RANK")
"""Variables with a launcher's rank. The first one that is set counts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Process:
    """One process of a host."""

    pid: int
    """Process id on this machine."""
    command: str
    rank: int | None
    """Rank in a distributed program, or None."""
    resident_bytes: int


def processes_of(init_pid: int, proc: Path = Path("/proc")) -> list[Process]:
    """Return the processes of a host, sorted by pid. `init_pid`: pid of the host's first process on this machine.

    The list is empty if this process has exited, or is in this machine's own PID namespace, as QEMU is. Processes that
    exit meanwhile are omitted.
    """
    try:
        namespace = (proc / str(init_pid) / "ns/pid").readlink()
        if namespace == (proc / "self/ns/pid").readlink():
            return []
    except OSError:
        return []
    found = []
    for path in proc.iterdir():
        if not path.name.isdecimal():
            continue
        try:
            if (path / "ns/pid").readlink() != namespace:
                continue
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            environment = (path / "environ").read_bytes()
            pages = int((path / "statm").read_text().split()[1])
        except (OSError, IndexError):
            continue
        found.append(
            Process(pid=int(path.name), command=command, rank=rank_of(environment), resident_bytes=pages * 4096)
        )
    return sorted(found, key=lambda process: process.pid)


def rank_of(environment: bytes) -> int | None:
    """Return the rank in a process's variables (the content of /proc/PID/environ), or None if they have none."""
    for name in RANK_VARIABLES:
        if match := re.search(rb"(?:^|\0)%s=(\d{1,9})(?:\0|$)" % name.encode(), environment):
            return int(match[1])
    return None


def ranks_of(processes: list[Process]) -> list[Process]:
    """Return one process for each rank, sorted by rank: the one with the most resident memory.

    Shells around a rank have its variables, but are smaller. Processes without a rank are omitted.
    """
    largest: dict[int, Process] = {}
    for process in processes:
        if process.rank is None:
            continue
        known = largest.get(process.rank)
        if known is None or process.resident_bytes > known.resident_bytes:
            largest[process.rank] = process
    return [largest[rank] for rank in sorted(largest)]
