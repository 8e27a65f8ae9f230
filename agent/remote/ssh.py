"""Run a command on a host, over SSH or locally, and check whether a host responds."""

from __future__ import annotations

import dataclasses
import errno
import selectors
import shlex
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agent.errors import describe
from agent.spec.nodes import RANK_USER, Node

OWN_TREE: Final = Path(__file__).resolve().parents[2]
"""The agent's tree that this process runs from. On the master it is on the local disk, where no rank can write."""
SSH: Final = str(OWN_TREE / "agent" / "bin" / "ssh")
AS_RANK: Final = ("-l", RANK_USER)
"""SSH's options to log in as the user for ranks."""
SSH_FAILED: Final = 255
"""Exit status of ssh if it cannot reach a host."""
TIMED_OUT: Final = 124
"""Status of a command that exceeded its time-out. Its processes on the host may continue."""
MAX_OUTPUT: Final = 16 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Completed:
    """The result of a command on one host."""

    status: int
    output: str
    """Standard output and standard error, mixed."""
    began: float = 0.0
    """Start and end of the command by this host's clock, seconds since 1970; 0 if it timed out or did not start."""
    ended: float = 0.0

    @property
    def last_line(self) -> str:
        """Return the last line of the output, or the status if the command printed nothing."""
        return (self.output.strip().splitlines() or [f"status {self.status}"])[-1]


def remote_command(host: Node | None, directory: str, argv: Sequence[str], *, as_rank: bool = False) -> list[str]:
    """Build the command that runs `argv` on a host in `directory`, or on this machine in OWN_TREE if `host` is None.

    `directory` is on the shared file system, where root on every node can write. That is why a command on the master
    runs in OWN_TREE instead. `as_rank`: on a host, run as the user for ranks.
    """
    script = f"cd {shlex.quote(str(OWN_TREE) if host is None else directory)} && exec {shlex.join(argv)}"
    return ["/bin/sh", "-c", script] if host is None else [SSH, *(AS_RANK if as_rank else ()), host.name, script]


def as_root(host: Node, words: str) -> list[str]:
    """Build the SSH command for root on a host, with one of two requests in `words`.

    `leftovers` removes the leftovers of ranks. `run GROUP ADDRESSES` admits only a run's ranks. The master can do
    nothing else as root on a host (`stacks/scripts/rank_leftovers.sh`).
    """
    return [SSH, "-l", "root", host.name, words]


def execute(command: Sequence[str], timeout_s: float) -> Completed:
    """Run a command without input and wait for it; keep the last MAX_OUTPUT bytes of its output.

    Standard output and standard error are mixed. The status is TIMED_OUT if the command was killed after `timeout_s`,
    and 127 for a missing program. In both cases the output ends with an explanation. Raises OSError if the program
    cannot be started for another reason.
    """
    began, deadline, kept = time.time(), time.monotonic() + timeout_s, bytearray()
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
        )
    except FileNotFoundError as error:
        return Completed(status=127, output=describe(error))
    status = None
    with process, selectors.DefaultSelector() as streams:
        try:
            streams.register(process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]  # a pipe
            while streams.select(max(0.0, deadline - time.monotonic())):
                if not (block := process.stdout.read(1 << 16)):  # type: ignore[union-attr]  # a pipe
                    status = process.wait(max(0.0, deadline - time.monotonic()))
                    break
                kept += block
                if len(kept) > 2 * MAX_OUTPUT:
                    del kept[:-MAX_OUTPUT]
                if time.monotonic() > deadline:
                    break
        except subprocess.TimeoutExpired:
            pass  # The process has closed its output but is still running.
        finally:
            process.kill()
    output = kept[-MAX_OUTPUT:].decode(errors="replace")
    if status is None:
        return Completed(status=TIMED_OUT, output=f"{output}\ntimed out after {timeout_s:g} s")
    return Completed(status=status, output=output, began=began, ended=time.time())


SSH_PORT: Final = 22
"""The only port on which workers accept the master."""
TIMEOUT_S: Final = 3.0
"""Allows for a lost packet, which is sent again after 1 s."""
_SILENT: Final = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT)


def answers(host: Node, port: int = SSH_PORT, timeout_s: float = TIMEOUT_S) -> bool:
    """Return whether a host accepts or rejects a connection to `port` within `timeout_s`, and so is alive.

    Use it only after a failure: OpenSSH 9.8 and later penalizes connections without a login, and rejects an address
    after 15 of them within as many seconds.
    """
    try:
        socket.create_connection((host.address, port), timeout_s).close()
    except OSError as error:
        return not (isinstance(error, TimeoutError) or error.errno in _SILENT)
    return True
