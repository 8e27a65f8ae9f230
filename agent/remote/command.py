"""One command on one host, over SSH or here, and its result."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
import time
from collections.abc import Sequence

from agent.spec.nodes import Node


@dataclasses.dataclass(frozen=True, kw_only=True)
class Completed:
    """The result of a command on one host."""

    status: int
    output: str
    """Standard output and error, mixed."""
    began: float = 0.0
    """When it was started and when it had ended, on this host's clock, seconds since 1970."""
    ended: float = 0.0


def remote_command(ssh: str, host: Node | None, directory: str, argv: Sequence[str]) -> list[str]:
    """Build the command that runs `argv` in `directory` on a host, or here when it is None."""
    script = f"cd {shlex.quote(directory)} && exec {shlex.join(argv)}"
    return ["/bin/sh", "-c", script] if host is None else [ssh, host.name, script]


def execute(command: Sequence[str], timeout_s: float) -> Completed:
    """Run a command without input and keep its output; a time-out is status 124, a missing program 127."""
    began = time.time()
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return Completed(
            status=124, output=f"{(error.stdout or b'').decode(errors='replace')}\nno end after {timeout_s:g} s"
        )
    except FileNotFoundError as error:
        return Completed(status=127, output=str(error))
    output = done.stdout.decode(errors="replace")
    return Completed(status=done.returncode, output=output, began=began, ended=time.time())
