"""Signal the processes of a run on this node, found by the run's id in their environment, and no others.

`python3 -m agent.remote.processes --runs ROOT --run ID --signal TERM --wait 0` prints JSON if it found any.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from agent.deadline import wait_until
from agent.spec.launchers import REPORTING
from agent.spec.run import RANK_VARIABLE, RUN_VARIABLE, RUNS_VARIABLE


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunProcess:
    """One process that belongs to a run."""

    pid: int
    parent: int
    run_id: str
    is_rank: bool
    """True for a rank and its children, False for the launcher and its SSH clients."""
    reports: bool = False
    """True for the shell above a rank that only reports how it ended, and passes no signal on."""
    rank: int | None = None
    """Number of the rank that the process belongs to."""


def parse_environment(block: bytes) -> dict[str, str]:
    """Parse /proc/PID/environ: `NAME=VALUE` entries that end with NUL; entries without `=` are left out."""
    entries = (entry.partition(b"=") for entry in block.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, equals, value in entries if equals}


def parse_parent(stat: str) -> int:
    """Parse the parent's pid from /proc/PID/stat, whose second field may itself hold spaces and parentheses."""
    return int(stat.rpartition(")")[2].split()[1])


def processes(runs_root: str, proc: Path = Path("/proc")) -> Iterator[RunProcess]:
    """Yield the processes on this node that belong to any run under `runs_root`; those of other users stay unseen."""
    for entry in proc.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            environment = parse_environment((entry / "environ").read_bytes())
            if environment.get(RUNS_VARIABLE) != runs_root or RUN_VARIABLE not in environment:
                continue
            parent = parse_parent((entry / "stat").read_text(encoding="utf-8", errors="replace"))
        except (OSError, IndexError, ValueError):
            continue  # It ended meanwhile, or it is not ours to read.
        rank = environment.get("HOROVOD_RANK", environment.get(RANK_VARIABLE, ""))
        yield RunProcess(
            pid=int(entry.name),
            parent=parent,
            run_id=environment[RUN_VARIABLE],
            is_rank="HOROVOD_RANK" in environment or RANK_VARIABLE in environment,
            reports=_reports(entry),
            rank=int(rank) if rank.isascii() and rank.isdecimal() and len(rank) < 10 else None,
        )


def _reports(entry: Path) -> bool:
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:  # It has ended.
        return False
    return words[: len(REPORTING)] == [os.fsencode(word) for word in REPORTING]


def select(
    found: Sequence[RunProcess], *, run_id: str, others: bool, ranks_only: bool, spared: Collection[str] = ()
) -> list[RunProcess]:
    """Select the processes of `run_id`, or with `others` those of every run but it and `spared`; never this process."""
    chosen = [p for p in found if (p.run_id != run_id) == others and p.run_id not in spared and p.pid != os.getpid()]
    return [p for p in chosen if p.is_rank] if ranks_only else chosen


def topmost(chosen: Sequence[RunProcess]) -> list[RunProcess]:
    """Return those whose parent is not among them: a graceful signal is theirs to pass on to their children.

    A shell that only reports a rank's end passes none on, and is left out.
    """
    asked = [p for p in chosen if not p.reports]
    pids = {p.pid for p in asked}
    return [p for p in asked if p.parent not in pids]


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
    """Signal the processes that `select` selects; after `wait_s` seconds name those still alive.

    `spared` is asked after the processes were listed: a run that has begun since is among its answers.
    """

    def current() -> list[RunProcess]:
        found = list(processes(runs_root))
        return select(found, run_id=run_id, others=others, ranks_only=ranks_only, spared=spared())

    chosen = current()
    targets = topmost(chosen) if number == signal.SIGTERM else chosen
    signalled = []
    for process in targets:
        try:
            os.kill(process.pid, number)
            signalled.append(process.pid)
        except ProcessLookupError:
            continue
    wait_until(lambda: not current(), timeout_s=wait_s, poll_s=0.05)
    left = current()
    return {"signalled": sorted(signalled), "left": sorted(p.pid for p in left)}


def command(
    python: str, runs_root: str, *, run_id: str, others: bool, ranks_only: bool, number: signal.Signals, wait_s: float
) -> list[str]:
    """Build the command line that does on another node what `signal_run` does here."""
    return [
        *(python, "-m", "agent.remote.processes"),
        *("--runs", runs_root, "--run", run_id),
        *(["--others"] if others else []),
        *(["--ranks-only"] if ranks_only else []),
        *("--signal", number.name.removeprefix("SIG"), "--wait", f"{wait_s:g}"),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status is 0 when nothing is left alive, else 1."""
    parser = argparse.ArgumentParser(prog="agent.remote.processes", description=__doc__)
    parser.add_argument("--runs", required=True, help="directory of all runs")
    parser.add_argument("--run", required=True, help="id of the run")
    parser.add_argument("--others", action="store_true", help="every run but this one")
    parser.add_argument("--ranks-only", action="store_true", help="not the launcher")
    parser.add_argument("--signal", choices=("TERM", "KILL"), default="TERM")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait for them to end")
    options = parser.parse_args(argv)
    result = signal_run(
        options.runs,
        run_id=options.run,
        others=options.others,
        ranks_only=options.ranks_only,
        number=signal.Signals[f"SIG{options.signal}"],
        wait_s=options.wait,
    )
    if any(result.values()):
        print(json.dumps(result))
    return 1 if result["left"] else 0


if __name__ == "__main__":
    sys.exit(main())
