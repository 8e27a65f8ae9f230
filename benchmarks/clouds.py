"""Run commands, here and on embedded clouds."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cluster import demo


def output_of(command: Sequence[str]) -> str:
    """Run a command in the repository and return its standard output. Waits until the command ends.

    Raises RuntimeError with the end of the command's output if it fails.
    """
    done = subprocess.run(
        command, cwd=demo.ROOT, env=demo.environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise RuntimeError(
            f"{shlex.join(command)} failed with exit status "
            f"{done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.stdout


def seconds(command: Sequence[str]) -> float:
    """Run a command and return its wall time, s. Raises RuntimeError if it fails."""
    began = time.monotonic()
    output_of(command)
    return time.monotonic() - began


def on_laptop(cloud: str, *command: str) -> list[str]:
    """Return the command line that runs a command on the laptop of the embedded cloud with the name `cloud`."""
    return demo.localcloud("run", "--name", cloud, "--", *command)


@contextmanager
def running_cloud(name: str) -> Iterator[None]:
    """Start an embedded cloud, with an SSH key on its laptop, for a block. Stop and remove it after the block.

    Needs root. Raises RuntimeError if a step fails.
    """
    output_of(demo.localcloud("start", "--name", name, *demo.owned(), *demo.runtime_mount()))
    try:
        output_of(on_laptop(name, "sh", "-c", demo.shell(demo.SSH_KEYGEN)))
        yield
    finally:
        output_of(demo.localcloud("stop", "--name", name))
