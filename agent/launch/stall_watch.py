"""A node's watch for stuck ranks: one that does nothing for minutes is named and killed, so that the run restarts.

A rank is stuck if it uses no CPU time while the run writes no step and no output. A rank that is stopped (SIGSTOP) or
blocked in the kernel is stuck whatever others write: under MPI, Horovod goes on to warn of the missing rank.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from agent.files.atomic_write import write_atomically
from agent.remote.processes import RunProcess
from agent.runs.directory import RunDirectory

MAX_COUNTED_S: Final = 15.0
"""The most that one look adds to a quiet time. If the node or this watch was suspended, the ranks are not to blame."""


class StallWatch:
    """The watch over one run's ranks on this node."""

    def __init__(
        self, directory: RunDirectory, node: str, after_s: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._directory, self._after_s, self._clock = directory, after_s, clock
        self._report = directory.stalled(directory.attempt, node)
        self._last = clock()
        self._quiet: dict[int, tuple[object, float]] = {}
        """What was last seen of each rank, and for how many seconds it has not changed."""

    def look(self, found: Sequence[RunProcess]) -> list[int]:
        """Report the ranks that are stuck and kill their processes; return the ranks."""
        now = self._clock()
        passed_s, self._last = min(now - self._last, MAX_COUNTED_S), now
        processes = defaultdict[int, list[RunProcess]](list)
        for each in found:
            if each.rank is not None:
                processes[each.rank].append(each)
        quiet = {}
        for rank, own in processes.items():
            seen = self._progress(own)
            before, seconds = self._quiet.get(rank, (None, 0.0))
            quiet[rank] = (seen, seconds + passed_s if seen == before else 0.0)
        self._quiet = quiet
        stuck = sorted(rank for rank, (_, seconds) in quiet.items() if seconds >= self._after_s)
        if stuck:
            with contextlib.suppress(OSError):  # Without a report, the launcher still names the rank that was killed.
                write_atomically(self._report, " ".join(map(str, stuck)))
        # The shell above a rank stays: it reports how the rank ended.
        for each in (each for rank in stuck for each in processes[rank] if not each.reports):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(each.pid, signal.SIGKILL)
        return stuck

    def _progress(self, processes: Sequence[RunProcess]) -> object:
        """Return a value that changes as long as the rank of these processes makes progress."""
        stats = {each.pid: _read_stat(each.pid) for each in processes}
        can_run = any(stats[each.pid][0] in ("R", "S") for each in processes if not each.reports)
        output = _size(self._directory.log) if can_run else 0
        return sorted((pid, cpu) for pid, (_, cpu) in stats.items()), _size(self._directory.metrics), output


def _read_stat(pid: int) -> tuple[str, int]:
    """Return the state of a process (proc_pid_stat(5)) and its CPU time in clock ticks; "" and 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return "", 0
    return fields[0], int(fields[11]) + int(fields[12])


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
