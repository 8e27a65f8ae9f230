"""Find the processes of ranks on this machine."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from agent.remote.processes import parse_environment

STUBBORN: Final = """\
import os, signal, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
    signal.signal(number, signal.SIG_IGN)
while True:
    time.sleep(1)
"""
"""A program with ranks that only SIGKILL stops."""


def processes() -> Iterator[tuple[int, dict[str, str], list[bytes]]]:
    """Yield the pid, environment and command line of every process. Skip processes that exit in the meantime."""
    for path in Path("/proc").iterdir():
        try:
            environment = parse_environment((path / "environ").read_bytes()) if path.name.isdecimal() else {}
            words = (path / "cmdline").read_bytes().split(b"\0") if environment else []
        except OSError:
            continue
        if environment:
            yield int(path.name), environment, words


def rank_of(run: str, number: int, *, word: str = "payload.train", variable: str = "HOROVOD_RANK") -> int | None:
    """Return the pid of a run's rank, found by a word in its command line and by the rank number in a variable.

    Returns None if the rank has not started or has exited.
    """
    for pid, environment, words in processes():
        is_rank = environment.get("DEEPCDK_RUN") == run and "HOROVOD_RANK" in environment
        if is_rank and environment.get(variable) == str(number) and word.encode() in words:
            return pid
    return None


def processes_of(run: str) -> tuple[list[int], list[int]]:
    """Return the pids of a run's ranks, supervisor and launcher, on all hosts of all clouds."""
    ranks: list[int] = []
    others: list[int] = []
    for pid, environment, words in processes():
        if environment.get("DEEPCDK_RUN") == run:
            (ranks if "HOROVOD_RANK" in environment else others).append(pid)
        elif b"agent.supervisor.cli" in words and run.encode() in words:
            others.append(pid)
    return ranks, others


def ignoring(number: signal.Signals, pids: Iterable[int]) -> int:
    """Count the live processes that ignore a signal (SigIgn in proc_pid_status(5))."""
    count = 0
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        (mask,) = re.findall(r"^SigIgn:\s*([0-9a-f]+)$", status, flags=re.MULTILINE)
        count += bool(int(mask, base=16) >> (number - 1) & 1)
    return count
