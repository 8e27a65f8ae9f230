"""Detect that the kernel has killed a process of a rank because memory ran out.

The kernel counts such kills per cgroup: `oom_kill` in `memory.events` of the victim's group, or in `memory.oom_control`
of version 1. This module watches the groups of the rank's main process and its parent. If process 1 is in the same
group, or if there is no group, the victim may belong to another program, and the report mentions it.
"""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agent.hardware.memory import memory_groups, read_fields, read_sample

OUT_OF_MEMORY: Final = "out of memory"
UNSURE: Final = f"perhaps {OUT_OF_MEMORY}"
SAMPLE_S: Final = 0.5
RECENT_S: Final = 60.0
"""How long after a kill the program may take to fail, for example after a data loader's worker was killed."""
SHORT: Final = 0.1
"""Share of the memory. If less is available, memory is short."""
KILLED: Final = (-signal.SIGKILL, 128 + signal.SIGKILL)
_MIB: Final = 1 << 20


def _counter(root: Path, pid: str) -> Path | None:
    """Return the file that counts kills in a process's memory cgroup; None if there is none."""
    for is_first, folders in memory_groups(root, pid):
        for folder in folders[:1] if is_first else folders:  # in version 2, a group also counts the groups below it
            file = folder / ("memory.oom_control" if is_first else "memory.events")
            if "oom_kill" in read_fields(file):
                return file
    return None


class MemoryWatch:
    """Watch the node's memory and the kills in a rank's cgroups while the rank runs."""

    def __init__(self, pid: int, *, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        """Start to watch the rank with the main process `pid`."""
        self._pids, self._root, self._clock = ("self", str(pid)), root, clock
        self._of_node = root / "proc/vmstat"
        self._kills: dict[Path, int] = {}
        """The last value of each counter."""
        self._own: set[Path] = set()
        """All cgroups that the rank has been in."""
        self._killed_at, self._is_sure = -RECENT_S, False
        self._last = self._least = read_sample(root)
        """The last sample, and of the last two samples before a kill the one with the least available memory."""
        self._take()

    def look(self) -> None:
        """Take a sample of the memory and of the kernel's counters if SAMPLE_S have passed since the last one."""
        if self._clock() >= self._last_at + SAMPLE_S:
            self._take()

    def _take(self) -> None:
        """Take a sample of the memory.

        If a counter of kills has increased, record this with the memory that was available.
        """
        sample, self._last_at = read_sample(self._root), self._clock()
        if grown := self._grown():
            was_sure = self._is_sure and self._last_at - self._killed_at <= RECENT_S
            self._killed_at, self._least = self._last_at, min(self._last, sample, key=lambda each: each.available)
            self._is_sure = was_sure or any(map(self._is_apart, grown))
        self._last = sample

    def _grown(self) -> list[Path]:
        """Return the counters of kills that have increased since the last call.

        The main process may have changed its cgroup, or have exited. So all counters seen before are read again.
        Without a cgroup, the node's counter is read.
        """
        self._own |= {folders[0] for pid in self._pids for _, folders in memory_groups(self._root, pid)}
        found = {file for pid in self._pids if (file := _counter(self._root, pid))}
        found = {*self._kills, *found} or {self._of_node}
        counts = {file: kills for file in found if (kills := read_fields(file).get("oom_kill")) is not None}
        grown = [file for file, kills in counts.items() if kills > self._kills.get(file, kills)]
        self._kills.update(counts)
        return grown

    def _is_apart(self, counter: Path) -> bool:
        """Return whether a counter belongs to a cgroup that the rank has been in and that process 1 is not in."""
        homes = [folders[0] for _, folders in memory_groups(self._root, "1")]
        is_shared = any(home.is_relative_to(counter.parent) for home in homes)
        return bool(homes) and not is_shared and counter.parent in self._own

    def describe(self, status: int) -> str:
        """Return how the rank ran out of memory, or perhaps did, as text; "" if it did not. Takes a last sample.

        It did if the kernel killed a process in the last RECENT_S, and the rank was killed or memory was short.
        `status` is the exit status of the rank's main process.
        """
        self._take()
        if self._clock() >= self._killed_at + RECENT_S:
            return ""
        if status not in KILLED and self._least.available > SHORT * self._least.size:
            return ""
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
        room = (
            f"{self._least.available // _MIB:,} of {self._least.size // _MIB:,} MiB of the node's memory were available"
        )
        used = f"used {peak // _MIB:,} MiB, and {room}"
        if self._is_sure:
            return f"{OUT_OF_MEMORY}: the kernel killed a process; the rank's largest process {used}"
        doubt = "perhaps not of this rank"
        return f"{UNSURE}: the kernel killed a process on this node, {doubt}; the rank's largest process {used}"
