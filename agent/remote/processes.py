"""Signal the processes of a run on this node, and no others: those with the run's id in their environment, which
includes the preparation of the node, and all that are below its ranks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.polling import wait_until
from agent.spec.launchers import RANK_PARENT
from agent.spec.run import PREPARATION_VARIABLE, RANK_VARIABLE, RUN_VARIABLE, RUNS_VARIABLE


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunProcess:
    """A process that belongs to a run."""

    pid: int
    parent: int
    run_id: str
    is_rank: bool
    """True for a rank and its children, false for the launcher, its SSH clients, and the preparation of the node."""
    reports: bool = False
    """True for the parent of a rank (`agent.launch.rank_parent`), which forwards SIGTERM and reports its exit."""
    rank: int | None = None
    """The rank that the process belongs to; None for the parent of a rank."""


def parse_environment(block: bytes) -> dict[str, str]:
    """Parse /proc/PID/environ: `NAME=VALUE` entries that end with NUL. Entries without `=` are left out."""
    entries = (entry.partition(b"=") for entry in block.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, equals, value in entries if equals}


def parse_parent(stat: str) -> int:
    """Parse the parent's process ID from /proc/PID/stat, whose second field can contain spaces and parentheses.

    Raises IndexError or ValueError for malformed text.
    """
    return int(stat.rpartition(")")[2].split()[1])


def processes(runs_root: str, proc: Path = Path("/proc")) -> Iterator[RunProcess]:
    """Yield the processes on this node that belong to any run under `runs_root`, if this user may read them.

    These are processes with a run's variables in their environment, and all descendants of ranks.
    """
    found: list[RunProcess] = []
    others: dict[int, list[int]] = {}
    """Processes without the variables of a run, by the process ID of their parent."""
    for entry in proc.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            environment = parse_environment((entry / "environ").read_bytes())
            parent = parse_parent((entry / "stat").read_text(encoding="utf-8", errors="replace"))
        except (OSError, IndexError, ValueError):
            continue  # It has just exited, or this user may not read it.
        if environment.get(RUNS_VARIABLE) == runs_root and (
            RUN_VARIABLE in environment or PREPARATION_VARIABLE in environment
        ):
            found.append(_process(entry, parent, environment))
        else:
            others.setdefault(parent, []).append(int(entry.name))
    for each in found:  # The list grows: a program may start processes with another environment.
        if each.is_rank:
            found += [
                dataclasses.replace(each, pid=pid, parent=each.pid, reports=False) for pid in others.pop(each.pid, ())
            ]
        yield each


def _process(entry: Path, parent: int, environment: Mapping[str, str]) -> RunProcess:
    reports = _reports(entry)
    rank = "" if reports else environment.get("HOROVOD_RANK", environment.get(RANK_VARIABLE, ""))
    return RunProcess(
        pid=int(entry.name),
        parent=parent,
        run_id=environment.get(RUN_VARIABLE) or environment[PREPARATION_VARIABLE],
        is_rank=reports or "HOROVOD_RANK" in environment or RANK_VARIABLE in environment,
        reports=reports,
        rank=int(rank) if rank.isascii() and rank.isdecimal() and len(rank) < 10 else None,
    )


def _reports(entry: Path) -> bool:
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:  # It has exited.
        return False
    return words[1 : 1 + len(RANK_PARENT)] == [os.fsencode(word) for word in RANK_PARENT]


def select(
    found: Sequence[RunProcess], *, run_id: str, others: bool, ranks_only: bool, spared: Collection[str] = ()
) -> list[RunProcess]:
    """Return the processes of `run_id` or, with `others`, those of all other runs except `spared`.

    This process is never among them. With `ranks_only`, only ranks are returned, without launchers and preparations.
    """
    chosen = [p for p in found if (p.run_id != run_id) == others and p.run_id not in spared and p.pid != os.getpid()]
    return [p for p in chosen if p.is_rank] if ranks_only else chosen


def topmost(chosen: Sequence[RunProcess]) -> list[RunProcess]:
    """Return the processes whose parent is not among `chosen`. They forward a graceful signal to their children."""
    pids = {p.pid for p in chosen}
    return [p for p in chosen if p.parent not in pids]


REPORT_S: Final = 2.0
"""How long parents of killed ranks may take to forward the last lines and to exit."""


def signal_run(
    runs_root: str,
    *,
    run_id: str,
    others: bool,
    ranks_only: bool,
    number: signal.Signals,
    wait_s: float,
    spared: Callable[[], Collection[str]] = tuple,
) -> dict[str, list[int]]:
    """Signal the processes of `run_id` on this node or, with `others`, those of all other runs except `spared`.

    With `ranks_only`, only ranks are signalled. SIGTERM goes only to the topmost processes, which forward it. Other
    signals go to the parents of ranks last, after up to REPORT_S. Wait up to `wait_s` seconds until all have exited.
    Return the process IDs that were signalled (`signalled`), and those that still run (`left`). `spared` is called
    after the processes are listed, so it includes runs that have just started.
    """

    def current() -> list[RunProcess]:
        found = list(processes(runs_root))
        return select(found, run_id=run_id, others=others, ranks_only=ranks_only, spared=spared())

    chosen = current()
    if number == signal.SIGTERM:
        signalled = _signal(topmost(chosen), number)
    else:
        signalled = _signal([p for p in chosen if not p.reports], number)
        wait_until(lambda: not current(), timeout_s=min(wait_s, REPORT_S), poll_s=0.05)
        signalled += _signal(current(), number)
    wait_until(lambda: not current(), timeout_s=wait_s, poll_s=0.05)
    left = current()
    return {"signalled": sorted({*signalled}), "left": sorted(p.pid for p in left)}


def _signal(targets: Sequence[RunProcess], number: signal.Signals) -> list[int]:
    """Send a signal to processes; return the IDs of those that had not exited.

    Raises PermissionError for a process of another user.
    """
    signalled = []
    for process in targets:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
            signalled.append(process.pid)
    return signalled


def command(
    python: str, runs_root: str, *, run_id: str, ranks_only: bool, number: signal.Signals, wait_s: float
) -> list[str]:
    """Build the command line that signals the processes of a run on another node, with the Python `python`.

    With `ranks_only`, only ranks are signalled. It waits up to `wait_s` seconds until the processes have exited, and
    exits with status 1 if some still run.
    """
    options = ["--ranks-only"] if ranks_only else []
    return [python, "-m", "agent.remote.processes", runs_root, run_id, number.name, f"{wait_s:g}", *options]


def main(argv: Sequence[str]) -> int:
    """Signal the processes of a run on this node. `argv` contains the arguments of a command line from `command`.

    Print the result as JSON if there were processes. Return 0 if no process is left, else 1.
    """
    runs_root, run_id, name, wait_s, *options = argv
    number = signal.Signals[name]
    result = signal_run(
        runs_root, run_id=run_id, others=False, ranks_only=bool(options), number=number, wait_s=float(wait_s)
    )
    if any(result.values()):
        print(json.dumps(result))
    return 1 if result["left"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
