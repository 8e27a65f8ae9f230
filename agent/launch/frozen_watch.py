"""A node's own watch over frozen ranks: one that a signal has stopped for a while is reported, and killed.

A rank that is stopped (SIGSTOP) computes nothing, and answers nothing. The others wait for it: over Gloo until a
time-out, over MPI for ever, and neither tells which one it was. Killed, it ends the run at once as any killed rank
does, and the report names it. A rank that a debugger holds (state t) is none, and neither is one that waits in the
kernel (state D): a long write to a slow disk looks the same as one that never ends, and a signal reaches neither.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Final

from agent.launch.rank_states import STOPPED, RankProcess
from agent.runs import frozen_report
from agent.runs.directory import RunDirectory
from agent.runs.frozen_report import FrozenRank

MOST_COUNTED_S: Final = 2.0
"""What counts at most between two looks. Whoever stops a whole node, or this watch with its ranks, is not punished for
it: time in which nothing was seen is not known to be a rank's own."""


class FrozenWatch:
    """The watch over one run's ranks on this node."""

    def __init__(
        self,
        directory: RunDirectory,
        node: str,
        after_s: float,
        *,
        waits: Callable[[int], str],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        kill: Callable[[int], None] = lambda pid: os.kill(pid, signal.SIGKILL),
    ) -> None:
        """`after_s`: how long a rank may be stopped; `waits`: as `RankStates.waits`."""
        self._directory, self._node, self._after_s = directory, node, after_s
        self._waits, self._clock, self._now, self._kill = waits, clock, now, kill
        self._attempt = directory.attempt
        self._last = clock()
        self._stopped: dict[tuple[int, int, int], tuple[float, float]] = {}
        """For how long, and since when, by pid, start and processor time: what has run meanwhile was not frozen."""
        self._reported: dict[int | None, FrozenRank] = {}

    def look(self, found: Sequence[RankProcess]) -> list[int]:
        """Take note of what is stopped, and report and kill what is frozen; return the processes that were killed."""
        clock, now = self._clock(), self._now()
        passed_s, self._last = min(clock - self._last, MOST_COUNTED_S), clock
        stopped, frozen = {}, []
        for each in found:
            process = each.process
            if process.state != STOPPED:
                continue
            key = (process.pid, process.start_ticks, process.cpu_ticks)
            before_s, since = self._stopped.get(key, (-passed_s, now))
            stopped[key] = (before_s + passed_s, since)
            if before_s + passed_s >= self._after_s:
                frozen.append(self._describe(each, *stopped[key]))
        self._stopped = stopped
        if not frozen:
            return []
        self._report(frozen)
        ranks = {each.rank for each in frozen if each.rank is not None}
        pids = {each.pid for each in frozen}
        return self._end([each for each in found if each.process.pid in pids or (each.is_own and each.rank in ranks)])

    def _describe(self, each: RankProcess, seconds: float, since: float) -> FrozenRank:
        process = each.process
        return FrozenRank(
            rank=each.rank,
            pid=process.pid,
            name=process.name,
            state=process.state,
            since=round(since, 3),
            seconds=round(seconds, 3),
            threads=process.threads,
            waits=self._waits(process.pid),
        )

    def _report(self, frozen: Sequence[FrozenRank]) -> None:
        """Write what was seen, the first process of each rank.

        Where that fails, as on a full disk, the launcher still tells which rank was killed.
        """
        for each in frozen:
            self._reported.setdefault(each.rank, each)
        with contextlib.suppress(OSError):
            frozen_report.write(self._directory, self._attempt, self._node, list(self._reported.values()))

    def _end(self, processes: Sequence[RankProcess]) -> list[int]:
        ended = []
        for each in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                self._kill(each.process.pid)
                ended.append(each.process.pid)
        return ended
