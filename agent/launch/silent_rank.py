"""Report a rank that waits silently, with its connections and its place in the kernel.

Ranks under torchrun and `plain` wait for each other for up to 30 minutes without printing a line.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from agent.launch.process_tree import SHELLS, Process, RankTree, words_of
from agent.launch.rank_connections import ESTABLISHED, connections, sockets

REPORT_S: Final = 120.0
"""A rank without output and CPU use is reported after this time, and again whenever the wait has doubled."""
BUSY: Final = 0.05
"""CPU use as a share of one core. A rank above it is computing, not waiting."""
_CONNECTING: Final = "02"
_LISTENS: Final = "0A"
_MAX_SHOWN: Final = 3
_MAX_WORDS: Final = 60


def cpu_s(processes: Sequence[Process]) -> float:
    """Return the CPU time in seconds of processes, and of exited children of these and of this process."""
    ticks, ended = 0, os.times()
    for each in processes:
        with contextlib.suppress(OSError, IndexError, ValueError):  # it has exited
            fields = (
                Path(f"/proc/{each.pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            )
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK") + ended.children_user + ended.children_system


def waits_for(pid: int, meeting: tuple[str, int]) -> str:
    """Return as text what the process `pid` waits for, by its connections, and where it is in the kernel.

    The text reports an attempt to connect, else open connections, else listening on rank 0's port, else no connection.
    `meeting` is the address and port of rank 0.
    """
    folder = Path(f"/proc/{pid}")
    inodes = set(sockets(folder))
    own = [each for each in connections(folder / "net") if each.inode in inodes]
    connecting = [each.remote for each in own if each.state == _CONNECTING]
    peers = [each.remote for each in own if each.state == ESTABLISHED]
    listens = any(each.state == _LISTENS and each.local[1] == meeting[1] for each in own)
    if connecting:
        text = f"connecting to {_endpoints(connecting)}, without an answer"
    elif peers:
        text = f"connected to {_endpoints(peers)}"
    elif listens:
        text = f"listening on port {meeting[1]}, no rank has connected"
    else:
        text = f"no connection, not even to rank 0 at {meeting[0]}:{meeting[1]}"
    with contextlib.suppress(OSError):
        place = (folder / "wchan").read_text(encoding="ascii").strip()
        text += f" (in the kernel at {place})" if place not in ("", "0") else ""
    return text


def _endpoints(found: Sequence[tuple[str, int]]) -> str:
    shown = [f"{address}:{port}" for address, port in dict.fromkeys(found)]
    return ", ".join(shown[:_MAX_SHOWN]) + (f" and {len(shown) - _MAX_SHOWN} more" if len(shown) > _MAX_SHOWN else "")


class WaitWatch:
    """Watch one rank for silent waits."""

    def __init__(
        self, tree: RankTree, meeting: tuple[str, int], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tree, self._meeting, self._clock = tree, meeting, clock
        self.take_output()

    def take_output(self) -> None:
        """Record that the rank has written output. The time of silence begins again."""
        self._since, self._next_s = self._clock(), REPORT_S
        self._sample: tuple[float, float] | None = None
        """Time of the last sample, and the CPU time at that time, s."""

    def look(self) -> str:
        """Return a description of the wait if the rank is silent and uses no CPU time; otherwise "".

        Call this repeatedly. The description is due after REPORT_S of silence, and again each time that this time has
        doubled. CPU use below BUSY, in the second half of the time, counts as none.
        """
        now = self._clock()
        silent_s = now - self._since
        if self._sample is None:
            if silent_s >= self._next_s / 2:
                self._sample = now, cpu_s(self._tree.find())
            return ""
        if silent_s < self._next_s:
            return ""
        found, (sampled_at, before_s) = self._tree.find(), self._sample
        self._next_s, self._sample = 2 * self._next_s, None
        if cpu_s(found) - before_s > BUSY * (now - sampled_at):
            return ""
        programs = [each for each in found if each.name not in SHELLS][:_MAX_SHOWN]
        waits = "; ".join(
            f"{words_of(each.pid)[:_MAX_WORDS]}: {waits_for(each.pid, self._meeting)}" for each in programs
        )
        return f"no output and no CPU time for {silent_s / 60:.0f} min. {waits}"
