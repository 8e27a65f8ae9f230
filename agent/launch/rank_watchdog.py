"""Watch a run's ranks on this node in the background: terminate ranks that exceed a limit or are stuck.

It also reports whether the ranks are connected to other ranks (`agent.launch.rank_connections`).

    python -m agent.launch.rank_watchdog RUN_DIRECTORY NODE    # by the node's first rank (`agent.launch.rank`)

It runs as long as the run has ranks here. It cannot detect a stop that also stops itself, such as `kill -STOP -1`.

A rank is stuck if it uses no CPU time while the run writes neither steps nor output. A rank that is stopped (SIGSTOP)
or blocked in the kernel is stuck even if others write: under MPI, Horovod keeps warning about the missing rank. A stuck
rank is reported and killed, so that the run restarts.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from agent.files.atomic_write import write_atomically
from agent.launch.rank_connections import LinkWatch
from agent.remote.processes import RunProcess, processes, signal_run
from agent.runs import run_cost
from agent.runs.run_cost import NODE_MARGIN_S
from agent.runs.run_directory import RunDirectory
from agent.spec.run import RunSpec

MAX_COUNTED_S: Final = 15.0
"""Maximum time that one check adds to a quiet period: the ranks are not at fault if the node itself was suspended."""


class StallWatch:
    """Watch one run's ranks on this node for ranks that are stuck: that make no progress for `after_s` seconds."""

    def __init__(
        self, directory: RunDirectory, node: str, after_s: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._directory, self._after_s, self._clock = directory, after_s, clock
        self._report = directory.stall_report(directory.attempt, node)
        self._last = clock()
        self._quiet: dict[int, tuple[object, float]] = {}
        """For each rank, the last progress value, and for how many seconds it has not changed."""

    def kill_stuck(self, found: Sequence[RunProcess]) -> list[int]:
        """Kill the ranks among the processes `found` that are stuck, and write their numbers to the node's report.

        Return the numbers; [] if none is stuck. Call this repeatedly.
        """
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
            with contextlib.suppress(OSError):  # Without the report, the launcher still names the killed rank.
                write_atomically(self._report, " ".join(map(str, stuck)))
        for each in (each for rank in stuck for each in processes[rank]):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(each.pid, signal.SIGKILL)
        return stuck

    def _progress(self, processes: Sequence[RunProcess]) -> object:
        """Return a value that changes as long as the rank of these processes makes progress.

        It contains their CPU times and the sizes of the run's metrics and log. The log does not count if none of them
        can run.
        """
        stats = {each.pid: _read_stat(each.pid) for each in processes}
        can_run = any(stats[each.pid][0] in ("R", "S") for each in processes)
        output = _size(self._directory.log) if can_run else 0
        return sorted((pid, cpu) for pid, (_, cpu) in stats.items()), _size(self._directory.metrics), output


def _read_stat(pid: int) -> tuple[str, int]:
    """Return a process's state (proc_pid_stat(5)) and its CPU time in clock ticks; "" and 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return fields[0], int(fields[11]) + int(fields[12])
    except (OSError, IndexError, ValueError):
        return "", 0


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


POLL_S: Final = 2.0
START_S: Final = 30.0
"""How long the first rank may take until its process is found."""
_NICENESS: Final = 10
"""Low priority, so that the watchdog does not slow down the computation."""
READ_S: Final = 30.0
"""How long to wait before another try if no limit can be read, because of an earlier attempt's NFS cache."""
_KILL_WAIT_S: Final = 5.0


class LimitWatch:
    """Watch one run's limit of time and cost: kill its ranks well after the limit, even if the master is dead.

    Normally, the supervisor on the master terminates the ranks at the limit. This is a fallback. It reads the limit
    again before it acts, because a restart may have changed it.
    """

    def __init__(
        self, directory: RunDirectory, *, margin_s: float = NODE_MARGIN_S, now: Callable[[], float] = time.time
    ) -> None:
        self._directory, self._margin_s, self._now = directory, margin_s, now
        self._ends = math.inf
        self._reads_at = -math.inf

    def kill_overdue(self) -> bool:
        """Kill the run's ranks on this node if the limit plus the margin has passed; return whether this was done.

        Call this repeatedly. After the kill, it waits some seconds until the ranks have exited.
        """
        now = self._now()
        if math.isinf(self._ends):
            if now >= self._reads_at:
                self._ends, self._reads_at = self._read() or math.inf, now + READ_S
            return False
        if self._ends + self._margin_s > now:
            return False
        later = self._read()
        if later is not None and later + self._margin_s > now:
            self._ends = later
            return False
        root, run_id = str(self._directory.path.parent), self._directory.run_id
        signal_run(root, run_id=run_id, others=False, ranks_only=True, number=signal.SIGKILL, wait_s=_KILL_WAIT_S)
        return True

    def _read(self) -> float | None:
        """Return when the limit is reached, in seconds since 1970.

        Return None if the run has no limit or has ended, or if the file is missing.
        """
        spent = run_cost.read_spent(self._directory)
        return spent.ends if spent else None


def watch(
    look: Callable[[], Sequence[RunProcess]],
    bound: LimitWatch | None,
    stall: StallWatch | None,
    links: LinkWatch | None = None,
    *,
    poll_s: float = POLL_S,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Watch until the run has no more ranks on this node, or `bound` has killed them. Return whether `bound` did.

    `look` returns the run's processes on this node. `bound` watches the limit of time and cost, `stall` watches for
    stuck ranks, and `links` watches the connections between ranks. Each may be None. After `stall` has killed ranks,
    watching continues. Ranks may take START_S to appear. `poll_s` is the interval in seconds.
    """
    began, has_begun = clock(), False
    while True:
        found = [each for each in look() if each.is_rank]
        if links:
            links.look(found)
        if not found and (has_begun or clock() - began >= START_S):
            return False
        has_begun = has_begun or bool(found)
        if stall:
            stall.kill_stuck(found)
        if bound and bound.kill_overdue():
            return True
        sleep(poll_s)


def main(argv: Sequence[str]) -> int:
    """Watch the ranks of a run on this node; return the exit status 0 when none is left.

    `argv` contains the run's directory and the node's name, or "" if the name is unknown.
    """
    directory, node = RunDirectory(path=Path(argv[0])), argv[1]
    spec = RunSpec.read(directory.path)
    others = [host.address for host in spec.hosts if host.name != node]
    os.nice(_NICENESS)
    os.umask(0o022)  # The supervisor, another user, reads the files.
    watch(
        lambda: [each for each in processes(spec.runs_root) if each.run_id == spec.run_id],
        LimitWatch(directory) if spec.bounds else None,
        StallWatch(directory, node, spec.stall_after_s) if spec.stall_after_s else None,
        LinkWatch(directory, node, others) if node and spec.may_train_apart else None,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
