"""One command on one host, over SSH or here, and its result; and whether a host is there at all."""

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

from agent.spec.nodes import RANK_USER, Node

OWN_TREE: Final = Path(__file__).resolve().parents[2]
"""The agent's tree that this process runs from: the master's is on its own disk, where no rank can write."""
SSH: Final = str(OWN_TREE / "agent" / "bin" / "ssh")
AS_RANK: Final = ("-l", RANK_USER)
"""SSH's flag for who logs in."""
SSH_FAILED: Final = 255
"""As ssh ends where it does not reach a host."""
MAX_OUTPUT: Final = 16 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Completed:
    """The result of a command on one host."""

    status: int
    output: str
    """Standard output and error, mixed."""
    began: float = 0.0
    """When it was started and when it had ended, on this host's clock, seconds since 1970."""
    ended: float = 0.0


def remote_command(host: Node | None, directory: str, argv: Sequence[str], *, as_rank: bool = False) -> list[str]:
    """Build the command that runs `argv` in `directory` on a host, or here, in the process's own tree, when it is None.

    `directory` is on the shared file system, where root on every node can write: nothing that lies there is run on the
    master. `as_rank`: on a host, as the user for ranks.
    """
    script = f"cd {shlex.quote(str(OWN_TREE) if host is None else directory)} && exec {shlex.join(argv)}"
    return ["/bin/sh", "-c", script] if host is None else [SSH, *(AS_RANK if as_rank else ()), host.name, script]


def as_root(host: Node, words: str) -> list[str]:
    """Build the SSH command that makes root of a host remove the leftovers of ranks, or admit a run.

    There is nothing else that the master can do as root (`stacks/scripts/leftovers.sh`).
    """
    return [SSH, "-l", "root", host.name, words]


def execute(command: Sequence[str], timeout_s: float) -> Completed:
    """Run a command without input and keep the last MAX_OUTPUT bytes of its output.

    A time-out is status 124, a missing program 127.
    """
    began, deadline, kept = time.time(), time.monotonic() + timeout_s, bytearray()
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
        )
    except FileNotFoundError as error:
        return Completed(status=127, output=str(error))
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
            pass  # It has closed its output, and runs on.
        finally:
            process.kill()
    output = kept[-MAX_OUTPUT:].decode(errors="replace")
    if status is None:
        return Completed(status=124, output=f"{output}\nno end after {timeout_s:g} s")
    return Completed(status=status, output=output, began=began, ended=time.time())


SSH_PORT: Final = 22
"""The one port on which workers admit the master."""
TIMEOUT_S: Final = 3.0
"""A lost packet is sent again after 1 s."""
_SILENT: Final = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT)


def answers(host: Node, port: int = SSH_PORT, timeout_s: float = TIMEOUT_S) -> bool:
    """Return whether a host takes or refuses a connection.

    Meant for the moments after a fault: sshd of OpenSSH 9.8 and later counts a connection without a login as an
    offence, and refuses an address that commits 15 within as many seconds.
    """
    try:
        socket.create_connection((host.address, port), timeout_s).close()
    except OSError as error:
        return not (isinstance(error, TimeoutError) or error.errno in _SILENT)
    return True
