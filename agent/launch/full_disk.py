"""Find the full disk when a rank's output reports one. The error of a program often names neither a path nor a host."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from agent.remote import rank_user
from agent.spec.run import RUN_VARIABLE, RUNS_VARIABLE

FULL_BYTES: Final = 1 << 20
"""A disk with less free space is full."""
_REPORTS: Final = tuple(os.strerror(number).encode() for number in (errno.ENOSPC, errno.EDQUOT))
_LINE: Final = re.compile(
    r"^(?:\[\d{1,9}\]<stderr>:)?\[launcher\] rank (\d{1,9}): the disk with ([^\n]{1,400}) is full \(([^\n]{1,40})\)$",
    re.MULTILINE,
)


def parse(log: str) -> list[tuple[int, str, str]]:
    """Return the full disks that a log reports: rank, path, and free space as text."""
    return [(int(rank), path, free) for rank, path, free in _LINE.findall(log)]


class DiskWatch:
    """Watch a rank's output for the system's message of a full disk."""

    def __init__(self, pid: int, environ: Mapping[str, str], *, shared: Iterable[str] = ("/tmp", "/dev/shm")) -> None:  # noqa: S108  # only measured
        """Watch the rank with the main process `pid`. `environ` names the run's directory.

        `shared` lists further directories to measure, which other programs on the node may also fill.
        """
        work = Path(environ.get(RUNS_VARIABLE, ""), environ.get(RUN_VARIABLE, ""), "work")
        self._own = Path(f"/proc/{pid}/cwd")
        self._places = (work, rank_user.home(), *map(Path, shared))
        self._found: dict[int, str] = {}
        """Reported disks, by device number."""

    def look(self, block: bytes) -> list[str]:
        """Return a line for each disk that is full now, if the rank's output `block` reports a full disk; otherwise [].

        Each disk is returned only once. The disks are measured immediately, because temporary files disappear when the
        program exits.
        """
        if not any(text in block for text in _REPORTS):
            return []
        found = []
        for place in (self._own, *self._places):
            try:
                path, state, device = place.resolve(), os.statvfs(place), place.stat().st_dev
            except OSError:
                continue
            if state.f_bavail * state.f_frsize < FULL_BYTES and device not in self._found:
                self._found[device] = str(path)
                found.append(f"the disk with {path} is full ({state.f_bavail * state.f_frsize / 2**20:.1f} MiB free)")
        return found
