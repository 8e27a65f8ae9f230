"""One figure: how it is taken, and what is promised of it."""

from __future__ import annotations

import dataclasses
import os
import platform
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tools import demo


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measure:
    """What is measured, how, and what is promised of it."""

    name: str
    unit: str
    promise: float
    """An upper bound in `unit`, or a lower one where `at_least` is set."""
    take: Callable[[], float]
    at_least: bool = False
    warm_up: bool = False
    """Take it once, unrecorded, before the first sample."""

    def kept(self, value: float) -> bool:
        """Return whether a value keeps the promise."""
        return value >= self.promise if self.at_least else value <= self.promise


def output_of(command: Sequence[str]) -> str:
    """Run a command to its end and return what it printed; raise with its last lines where it fails."""
    done = subprocess.run(
        command, cwd=demo.ROOT, env=demo.environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise RuntimeError(
            f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.stdout


def seconds(command: Sequence[str]) -> float:
    """Run a command to its end and return its wall time."""
    began = time.monotonic()
    output_of(command)
    return time.monotonic() - began


def on_laptop(cloud: str, *command: str) -> list[str]:
    """Return the command line that runs a command on the laptop of an embedded cloud."""
    return demo.localcloud("run", "--name", cloud, "--", *command)


@contextmanager
def running_cloud(name: str) -> Iterator[None]:
    """Keep an embedded cloud up, with an SSH key on its laptop, for the time of a block."""
    output_of(demo.localcloud("start", "--name", name, *demo.owned(), *demo.runtime_mount()))
    try:
        output_of(on_laptop(name, "sh", "-c", demo.shell(demo.SSH_KEYGEN)))
        yield
    finally:
        output_of(demo.localcloud("stop", "--name", name))


def machine() -> dict[str, object]:
    """Return the facts of this machine that a file of samples records."""
    return {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
