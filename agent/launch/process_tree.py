"""The processes of one rank: the descendants of its parent (`agent.launch.rank_parent`), and their termination.

The parent adopts orphans (PR_SET_CHILD_SUBREAPER), so a process cannot hide by a new session, environment or name.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

_SET_DEATH_SIGNAL: Final = 1
_SET_CHILD_SUBREAPER: Final = 36
SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "busybox"})
END_S: Final = 5.0
"""Seconds from SIGTERM to SIGKILL for leftover processes. Wrappers are frozen for the same time."""
STUCK_S: Final = 30.0
"""Seconds from the first SIGKILL until the remaining processes are reported, for example one in state D."""
WATCHDOG: Final = "agent.launch.rank_watchdog"
"""The only descendant of ranks that does not belong to the program. It exits by itself."""
_MAX_SHOWN: Final = 8
_MAX_WORDS: Final = 80


@dataclasses.dataclass(frozen=True, kw_only=True)
class Process:
    """A process, as /proc/PID/status describes it."""

    pid: int
    parent: int
    name: str
    has_exited: bool = False
    catches: bool = False
    """Whether the process has a handler for SIGTERM."""
    in_background: bool = False
    """Whether a shell has started the process with `&`. Such a process ignores SIGQUIT."""


def parse_status(pid: int, text: str) -> Process:
    """Parse the text of /proc/PID/status. Raises KeyError or ValueError if it is malformed."""
    fields = dict(line.partition(":\t")[::2] for line in text.splitlines())
    caught, ignored = (int(fields[name].strip(), 16) for name in ("SigCgt", "SigIgn"))
    return Process(
        pid=pid,
        parent=int(fields["PPid"]),
        name=fields["Name"],
        has_exited=fields["State"][:1] in ("Z", "X"),
        catches=bool(caught >> (signal.SIGTERM - 1) & 1),
        in_background=bool(ignored >> (signal.SIGQUIT - 1) & 1),
    )


def words_of(pid: int) -> str:
    """Return the command line of a process, with its words separated by blanks; "" if the process has exited."""
    try:
        found = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
    return " ".join(found.split())


def descendants(root: int, proc: Path = Path("/proc")) -> list[Process]:
    """Return the descendants of the process `root` that have not exited, parents first."""
    children: dict[int, list[Process]] = {}
    for entry in proc.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, KeyError, ValueError):  # the process has just exited
                text = (entry / "status").read_text(encoding="utf-8", errors="replace")
                process = parse_status(int(entry.name), text)
                children.setdefault(process.parent, []).append(process)
    return [each for each in _below(root, children) if not each.has_exited]


def _below(root: int, children: Mapping[int, Sequence[Process]]) -> Iterator[Process]:
    """Yield all descendants of `root`, parents first."""
    waiting = [*children.get(root, ())]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += children.get(each.pid, ())


def whom_to_ask(processes: Sequence[Process]) -> tuple[list[Process], list[Process]]:
    """Return the processes that get SIGTERM, and the processes to freeze meanwhile. `processes` lists parents first.

    If a program handles SIGTERM, only that program gets the signal. It still needs its own workers, and a `tee` that
    reads its output, while it saves a checkpoint. Its ancestors that do not handle SIGTERM, such as a shell, are
    frozen: they would exit and cut off its output, or start their next command. A shell runs its trap only after the
    foreground command, so both get the signal. If no process handles SIGTERM, all of them get it, and none is frozen.
    """
    above = {each.parent for each in processes if each.catches}
    for each in reversed(processes):
        if each.pid in above:
            above.add(each.parent)
    asked: dict[int, Process] = {}
    covered: set[int] = set()
    for each in processes:
        parent = asked.get(each.parent)
        if each.parent in covered or (parent and (parent.name not in SHELLS or each.in_background)):
            covered.add(each.pid)
        elif each.catches:
            asked[each.pid] = each
    frozen = [each for each in processes if each.pid in above and each.pid not in covered and each.pid not in asked]
    return ([*asked.values()], frozen) if asked else ([*processes], [])


class RankTree:
    """All descendants of this process. Creating it makes this process the new parent of orphaned descendants."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._libc = ctypes.CDLL(None)
        self._libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._asked: set[int] | None = None
        """Process IDs that got SIGTERM on request; None before a request."""
        self._awaited: list[int] = []
        """pidfds of the same processes, except those that have exited."""
        self._wrappers: set[int] = set()
        """Frozen processes that are not shells."""
        self._released_at = 0.0
        self._killed_at = 0.0
        """When leftover processes get SIGKILL; 0 before they have got SIGTERM."""

    def begin(self) -> None:
        """Prepare a child before it executes its program: pass this as `preexec_fn`, to be called in the child.

        The kernel kills the child when its parent dies. SIGINT and SIGQUIT get their default actions: a process that
        ignores SIGQUIT counts as started by a shell in the background, and the launcher may have inherited that
        setting.
        """
        self._libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        for each in (signal.SIGINT, signal.SIGQUIT):
            signal.signal(each, signal.SIG_DFL)

    def find(self) -> list[Process]:
        """Return the rank's processes that are running, without the watchdog, parents first."""
        return [each for each in descendants(os.getpid()) if WATCHDOG not in words_of(each.pid).split()]

    @property
    def is_stopping(self) -> bool:
        """Return whether the rank was asked to stop."""
        return self._asked is not None

    def stop(self) -> None:
        """Ask the rank's processes to stop with SIGTERM, and freeze others (`whom_to_ask`). Does not wait.

        The frozen ones stay so until the caller resumes and ends them: call `tend` repeatedly while `is_awaited`, then
        `end`. Repeated calls of `stop` have no effect.
        """
        if self.is_stopping:
            return
        asked, frozen = whom_to_ask(self.find())
        self._asked = {each.pid for each in asked}
        self._wrappers = {each.pid for each in frozen if each.name not in SHELLS}
        self._released_at = self._clock() + END_S
        send((each.pid for each in frozen), signal.SIGSTOP)
        for pid in self._asked:
            with contextlib.suppress(OSError):
                self._awaited.append(os.pidfd_open(pid))
        send(self._asked, signal.SIGTERM, signal.SIGCONT)  # a stopped process gets SIGTERM only when it continues

    def is_awaited(self) -> bool:
        """Return whether a process that was asked to stop is still running. It checks only these processes."""
        poll = select.poll()
        for descriptor in self._awaited:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(0):
            self._awaited.remove(descriptor)
            os.close(descriptor)
        return bool(self._awaited)

    def tend(self) -> None:
        """Send SIGTERM to the frozen programs that are not shells, and resume them, END_S after `stop`.

        Does nothing before that time, or if none is frozen any more.
        """
        if self._wrappers and self._clock() >= self._released_at:
            send(self._wrappers, signal.SIGTERM, signal.SIGCONT)
            self._wrappers = set()

    def end(self, left: Sequence[Process]) -> bool:
        """Terminate the leftover processes `left`: SIGTERM at the first call, SIGKILL after END_S. Call it repeatedly.

        Return whether some remain STUCK_S after SIGKILL. Processes that were asked to stop have no time limit here.
        """
        if any(each.pid in (self._asked or ()) for each in left):
            self.tend()
        elif not self._killed_at:
            self._killed_at = self._clock() + END_S
            send((each.pid for each in left), signal.SIGTERM, signal.SIGCONT)
        elif self._clock() >= self._killed_at:
            send((each.pid for each in left), signal.SIGKILL)
            return self._clock() >= self._killed_at + STUCK_S
        return False

    def kill(self) -> None:
        """Kill all processes of the rank with SIGKILL."""
        send((each.pid for each in self.find()), signal.SIGKILL)


def send(pids: Iterable[int], *signals: signal.Signals) -> None:
    """Send signals to processes. Skip processes that have exited or changed their user."""
    for pid in pids:
        for number in signals:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def describe(processes: Sequence[Process]) -> str:
    """Return the command lines and IDs of the first _MAX_SHOWN processes, and the number of the others, as text."""
    shown = [f"{(words_of(each.pid) or each.name)[:_MAX_WORDS]} (process {each.pid})" for each in processes]
    more = f", and {len(shown) - _MAX_SHOWN} more" if len(shown) > _MAX_SHOWN else ""
    return ", ".join(shown[:_MAX_SHOWN]) + more
