"""The processes of a run on this node, as the kernel has them: state, processor time, and the rank that each is of.

Pure parsers of /proc, and a reader that can look every second: it reads one short file of each process of its own user,
and the environment of a rank once.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent.remote.processes import parse_environment
from agent.spec.rank_command import REPORTING
from agent.spec.run import RANK_VARIABLE, RUN_VARIABLE, RUNS_VARIABLE

STOPPED: Final = "T"
"""A process that a signal has stopped (proc_pid_stat(5)); one that a debugger holds is in state t."""
_ENDED: Final = "ZX"
"""The states of a process that has ended, before its parent asks for its status. One whose first thread alone has ended
is in the same state, and has others."""
_OF_RANKS: Final = ("HOROVOD_RANK", RANK_VARIABLE)
"""What the processes of a rank have in their environment; its parent over Gloo (`REPORTING`) has it too."""
_OF_PARENTS: Final = ("OMPI_COMM_WORLD_RANK", "RANK")
"""What the parents of ranks have: `agent.launch.mpi_rank`, `agent.launch.marked_rank`."""
_MOST_DIGITS: Final = 9


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessState:
    """What /proc/PID/stat says of one process."""

    pid: int
    name: str
    """15 bytes of the program's file, or what the process calls itself."""
    state: str
    """One letter: R, S, D, T, t, Z, ..."""
    cpu_ticks: int
    """Processor time of all its threads, in clock ticks."""
    threads: int
    start_ticks: int
    """When it began, in clock ticks since boot: with the pid this is one process and no later one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankProcess:
    """One process of a run on this node."""

    process: ProcessState
    rank: int | None
    """None for what starts ranks, and is of none of them."""
    is_own: bool
    """Whether the rank's program is this process, or has started it; False for what stands above the program."""


def parse_stat(text: str) -> ProcessState:
    """Parse /proc/PID/stat, whose second field may hold spaces, line ends and parentheses. Raises ValueError."""
    before, _, after = text.rpartition(")")
    pid, _, name = before.partition("(")
    fields = after.split()
    if len(fields) < 20 or len(fields[0]) != 1:
        raise ValueError(f"not the state of a process: {text[:80]!r}")
    return ProcessState(
        pid=int(pid),
        name=name,
        state=fields[0],
        cpu_ticks=int(fields[11]) + int(fields[12]),
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
    )


def parse_rank(environment: Mapping[str, str]) -> tuple[int | None, bool]:
    """Return the rank that a process of a run is of, None for none, and whether it is the rank's own."""
    for names, is_own in ((_OF_RANKS, True), (_OF_PARENTS, False)):
        for name in names:
            text = environment.get(name, "")
            if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS:
                return int(text), is_own
    return None, False


def is_reporter(command_line: bytes) -> bool:
    """Return whether a process is the shell above a rank over Gloo, by /proc/PID/cmdline."""
    return command_line.split(b"\0")[:3] == [os.fsencode(word) for word in REPORTING[:3]]


class RankStates:
    """The processes of one run on this node, of this user."""

    def __init__(self, runs_root: str, run_id: str, proc: Path = Path("/proc")) -> None:
        self._runs_root, self._run_id, self._proc = runs_root, run_id, proc
        self._ranks: dict[tuple[int, int], int | None] = {}
        """Processes that were seen to be a rank's own, by pid and start: a process that hangs may keep a reader of
        its environment waiting, and its state never does."""

    def look(self) -> list[RankProcess]:
        """Return what there is now, by pid."""
        found, ranks = [], {}
        for pid in self._own_pids():
            # What has ended meanwhile, or is not ours to read, is left out.
            with contextlib.suppress(OSError, ValueError):
                process = parse_stat(_read(f"{self._proc}/{pid}/stat").decode(errors="replace"))
                if process.state in _ENDED and process.threads <= 1:
                    continue
                key = (pid, process.start_ticks)
                if key in self._ranks:
                    found.append(RankProcess(process=process, rank=self._ranks[key], is_own=True))
                    ranks[key] = self._ranks[key]
                elif place := self._place(pid):
                    found.append(RankProcess(process=process, rank=place[0], is_own=place[1]))
                    if place[1]:
                        ranks[key] = place[0]
        self._ranks = ranks
        return sorted(found, key=lambda each: each.process.pid)

    def waits(self, pid: int) -> str:
        """Return where in the kernel the threads of a process wait, the most of them first; "" where it does not say.

        As `14 in do_signal_stop, 1 in exit_mm`.
        """
        places: collections.Counter[str] = collections.Counter()
        with contextlib.suppress(OSError):
            for thread in (self._proc / str(pid) / "task").iterdir():
                with contextlib.suppress(OSError):
                    place = (thread / "wchan").read_text(encoding="utf-8", errors="replace").strip("\0\n ")
                    places[place] += place not in ("", "0")
        return ", ".join(f"{count} in {place}" for place, count in places.most_common(5) if count)

    def _own_pids(self) -> list[int]:
        own = os.getuid()
        with os.scandir(self._proc) as entries:
            found = []
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.name.isdecimal() and entry.stat().st_uid == own:
                        found.append(int(entry.name))
        return found

    def _place(self, pid: int) -> tuple[int | None, bool] | None:
        """Return what `parse_rank` does, None for a process of no run or another one."""
        environment = parse_environment((self._proc / str(pid) / "environ").read_bytes())
        if (environment.get(RUNS_VARIABLE), environment.get(RUN_VARIABLE)) != (self._runs_root, self._run_id):
            return None
        rank, is_own = parse_rank(environment)
        if is_own and is_reporter((self._proc / str(pid) / "cmdline").read_bytes()):
            is_own = False
        return rank, is_own


def _read(path: str) -> bytes:
    """Read a file of /proc, which says all of it at once, with fewer calls than a Path makes. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
