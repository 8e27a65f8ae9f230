"""Run the steps of a setup, each once for its inputs, with its output in a log. Standard library only."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from agent.files.atomic_write import write_atomically

MAX_LINES: Final = 20


class StepError(RuntimeError):
    """A command of a step failed. The message has the step, the command, the last lines of its log, and its path."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One step of the setup."""

    name: str
    # hash of all inputs of the step; a stamp with this hash means that the step is done
    key: str
    present: Callable[[], bool]  # whether the result still exists
    run: Callable[[Log], None]
    note: str = ""  # the expected time


@dataclasses.dataclass(frozen=True, kw_only=True)
class Log:
    """Runs a step's commands and logs their output to a file."""

    step: str
    path: Path
    environ: Mapping[str, str]

    def run(self, command: Sequence[str], cwd: Path) -> str:
        """Run `command` in `cwd`, append its output to the log, and return its standard output.

        Raises StepError with the log's last lines if the command fails.
        """
        with self.path.open("a") as log:
            log.write(f"$ {' '.join(command)}\n")
            log.flush()
            finished = subprocess.run(
                command, cwd=cwd, env=dict(self.environ), stdout=subprocess.PIPE, stderr=log, text=True, check=False
            )
            log.write(finished.stdout)
        if finished.returncode != 0:
            last = self.path.read_text(errors="replace").splitlines()[-MAX_LINES:]
            output = "\n".join(f"    {line}" for line in last)
            raise StepError(
                f"{self.step}: {command[0]} failed with exit status {finished.returncode}\n{output}\n"
                f"the full log: {self.path}"
            )
        return finished.stdout


def key_of(*parts: str | Path) -> str:
    """Return one hash of all parts: of texts, and of the contents of files, which are given as paths."""
    total = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else part.encode()
        total.update(hashlib.sha256(data).digest())
    return total.hexdigest()


def run_steps(steps: Sequence[Step], state: Path, environ: Mapping[str, str], *, out: Callable[[str], None]) -> None:
    """Run the steps that are not done, in order, and pass a line about each step to `out`. Raises StepError.

    `state`: directory for stamps and logs. A step is done if its stamp contains its key and its result is present.
    """
    (state / "logs").mkdir(parents=True, exist_ok=True)
    for step in steps:
        stamp = state / f"{step.name.replace(' ', '-')}.stamp"
        if stamp.is_file() and stamp.read_text() == step.key and step.present():
            out(f"{step.name:<18} up to date")
            continue
        stamp.unlink(missing_ok=True)
        out(f"{step.name:<18} ... {step.note}".rstrip())
        path = state / "logs" / f"{stamp.stem}.log"
        path.unlink(missing_ok=True)
        started = time.monotonic()
        step.run(Log(step=step.name, path=path, environ=environ))
        write_atomically(stamp, step.key)
        out(f"{step.name:<18} {time.monotonic() - started:.1f} s")


def run_lanes(
    lanes: Sequence[Sequence[Step]], state: Path, environ: Mapping[str, str], *, out: Callable[[str], None]
) -> None:
    """Run several sequences of steps at the same time.

    After an error or Ctrl-C, start no further step, wait for the running ones, and re-raise. The other arguments and
    the errors are those of `run_steps`.
    """
    stopped = threading.Event()

    def run(lane: Sequence[Step]) -> None:
        try:
            for step in lane:
                if not stopped.is_set():
                    run_steps([step], state, environ, out=out)
        except BaseException:
            stopped.set()
            raise

    with ThreadPoolExecutor(len(lanes)) as pool:
        running = [pool.submit(run, lane) for lane in lanes]
        try:
            for each in running:
                each.result()
        except BaseException:
            stopped.set()
            raise


def print_line(line: str) -> None:
    """Print a line and flush it, so that it also appears in a pipe immediately."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
