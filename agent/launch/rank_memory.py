"""Notice that the kernel has killed a process of a rank because memory ran out.

The kernel counts such kills of the whole node (`oom_kill` in /proc/vmstat), also those at the limit of a cgroup.
"""

from __future__ import annotations

import dataclasses
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

OUT_OF_MEMORY: Final = "out of memory"
SAMPLE_S: Final = 1.0
RECENT_S: Final = 60.0
"""How long after a kill the program may take to fail, as when a worker of a data loader was killed."""
SHORT: Final = 0.1
"""Part of the memory. If less is available, memory is short."""
KILLED: Final = (-signal.SIGKILL, 128 + signal.SIGKILL)
_MIB: Final = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """The memory of a node, bytes, and how many processes the kernel has killed for lack of it since boot."""

    kills: int
    available: int
    size: int


def read_sample(root: Path = Path("/")) -> Sample:
    """Read this node's memory; the limit of a cgroup counts if it is lower. What cannot be read is 0."""
    memory = _fields(root / "proc/meminfo")
    available, size = memory.get("MemAvailable:", 0) << 10, memory.get("MemTotal:", 0) << 10
    for limit, used in _cgroups(root):
        if limit < size:
            available, size = min(available, max(0, limit - max(0, used))), limit
    return Sample(kills=_fields(root / "proc/vmstat").get("oom_kill", 0), available=available, size=size)


def _fields(path: Path) -> dict[str, int]:
    try:
        lines = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
        return {words[0]: int(words[1]) for words in lines if len(words) > 1}
    except (OSError, ValueError):
        return {}


def _cgroups(root: Path) -> Iterator[tuple[int, int]]:
    """Yield the limit and the use of each memory cgroup that this process is in, bytes; of version 2 and 1.

    Cached files do not count as used: the kernel drops them before it kills a process.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        names = (
            ("memory.max", "memory.current") if not controllers else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        )
        top = root / "sys/fs/cgroup" / controllers
        here = top / path.lstrip("/")
        for folder in (here, *here.parents):
            if not folder.is_relative_to(top):
                break
            try:
                limit, used = (int((folder / name).read_text(encoding="ascii")) for name in names)
            except (OSError, ValueError):  # no limit, or not visible here
                continue
            fields = _fields(folder / "memory.stat")  # of version 1 only `total_` includes the cgroups below
            cached = sum(fields.get(f"total_{name}", fields.get(name, 0)) for name in ("inactive_file", "active_file"))
            yield limit, used - cached


class MemoryWatch:
    """The memory of the node while a rank runs."""

    def __init__(
        self, read: Callable[[], Sample] = read_sample, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read, self._clock = read, clock
        self._last, self._last_at = read(), clock()
        self._killed_at = -RECENT_S
        self._least: Sample = self._last
        """The sample with the least memory available, of the last two before a kill."""

    def look(self) -> None:
        """Take a sample once a second."""
        if self._clock() < self._last_at + SAMPLE_S:
            return
        self._take()

    def _take(self) -> None:
        sample, self._last_at = self._read(), self._clock()
        if sample.kills > self._last.kills:
            self._killed_at, self._least = self._last_at, min(self._last, sample, key=lambda each: each.available)
        self._last = sample

    def describe(self, status: int) -> str:
        """Return how the rank ran out of memory, in words; "" if it did not. `status`: of its main process."""
        self._take()
        if self._clock() >= self._killed_at + RECENT_S:
            return ""
        if status not in KILLED and self._least.available > SHORT * self._least.size:
            return ""
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
        room = (
            f"{self._least.available // _MIB:,} of {self._least.size // _MIB:,} MiB of the node's memory were available"
        )
        return f"{OUT_OF_MEMORY}: the kernel killed a process; the largest one used {peak // _MIB:,} MiB, and {room}"
