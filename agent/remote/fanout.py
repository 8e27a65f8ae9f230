"""Run one command on many nodes concurrently, from the master: the cluster's side of `fab run`.

`python3 -m agent.remote.fanout` reads the request as one line of JSON from standard input, and prints JSON lines as
results arrive. The command's words reach the process that executes them as data, without any shell. If standard input
or this process ends, the commands on all nodes are terminated.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import selectors
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from agent.errors import SpecError, describe
from agent.remote.fanout_stub import FLAGS, MODULE_SCRIPT, READY, SCRIPT, message
from agent.remote.ssh import AS_RANK
from agent.spec.laptop_requests import BAD_REQUEST, RemoteCommand
from agent.spec.nodes import MASTER_NAME, NODE_PYTHON, NODES_PATH

HEARTBEAT_S: Final = 5.0
BLOCK: Final = 1 << 16
MAX_GREETING: Final = 1 << 16
"""Maximum bytes to keep of a node's output before the command starts there."""


def node_command(
    host: str, ssh: str, python: str = NODE_PYTHON, *, is_module: bool = False, as_rank: bool = False
) -> list[str]:
    """Build the command that starts a node's stub: over SSH, or locally if the host is the master.

    `ssh` is the path of the SSH client. With `is_module`, the stub calls a module's `main` instead of starting a
    command. With `as_rank`, SSH logs in as the user for ranks.
    """
    words = [python, *FLAGS, "-c", MODULE_SCRIPT if is_module else SCRIPT]
    return words if host == MASTER_NAME else [ssh, *(AS_RANK if as_rank else ()), host, shlex.join(words)]


class AbandonedError(RuntimeError):
    """Report that the laptop has disconnected or has cancelled the command."""


class _Host:
    """The process for one node, with its output that has not been forwarded."""

    def __init__(self, name: str, process: subprocess.Popen[bytes]) -> None:
        self.name, self.process = name, process
        self.began = time.monotonic()
        self.open_streams = 2
        self.is_ready = False
        self.head = b""
        """Standard output until the node's stub has reported that it is ready."""
        self.trouble = b""
        """Standard error until the stub is ready: messages of SSH."""


def fan_out(
    request: RemoteCommand, hosts: Sequence[str], emit: Callable[[Mapping[str, Any]], None], stdin: IO[bytes], ssh: str
) -> int:
    """Run the request on these hosts concurrently, pass all results to `emit`, and return on how many hosts it failed.

    A host that was not reached counts as failed. `stdin` is the unbuffered connection from the laptop.
    Messages: `{"host", "stream": "stdout" or "stderr", "data": base64}` for output; at the end of each host `{"host",
    "exit_code", "reached", "seconds"}`, with `"trouble"` if it was not reached; `{"heartbeat": true}` after a silence.
    `main` first sends `{"warning"}` for each node that is left out, and `{"hosts"}`. If `stdin` is closed, the commands
    are terminated, and AbandonedError is raised.
    """
    sent = message(request.command, dict(request.environment))
    selector = selectors.DefaultSelector()
    running: list[_Host] = []
    failed = 0
    selector.register(stdin, selectors.EVENT_READ, None)
    try:
        for name in hosts:
            process = subprocess.Popen(
                node_command(name, ssh, is_module=request.is_module, as_rank=request.as_rank),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            host = _Host(name, process)
            running.append(host)
            selector.register(_stream(process.stdout), selectors.EVENT_READ, (host, "stdout"))
            selector.register(_stream(process.stderr), selectors.EVENT_READ, (host, "stderr"))
            feeder = threading.Thread(target=_feed, args=(process, sent), daemon=True)
            feeder.start()
            if len(sent) < BLOCK:
                feeder.join()  # A pipe holds that much. SSH reads more only after it has connected.
        while running:
            ready = selector.select(timeout=HEARTBEAT_S)
            if not ready:
                emit({"heartbeat": True})
            for key, _ in ready:
                if key.data is None:
                    if not os.read(stdin.fileno(), BLOCK):
                        raise AbandonedError("standard input was closed")
                    continue
                host, stream = key.data
                block = os.read(key.fd, BLOCK)
                if block:
                    _forward(host, stream, block, emit)
                    continue
                selector.unregister(key.fileobj)
                host.open_streams -= 1
                if not host.open_streams:
                    running.remove(host)
                    failed += _finish(host, emit)
    finally:
        for host in running:
            _close(host.process)  # The node's stub detects that, and terminates the command.
        deadline = time.monotonic() + 6.0
        for host in running:
            try:
                host.process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                host.process.kill()
        selector.close()
    return failed


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise RuntimeError("a pipe was not made")
    return stream


def _close(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError):
        _stream(process.stdin).close()


def _feed(process: subprocess.Popen[bytes], sent: bytes) -> None:
    """Send the request to the node's stub, and leave the pipe open.

    Errors are ignored: the stub's output gives the reason.
    """
    with contextlib.suppress(OSError, ValueError):  # It has exited already, and its last output gives the reason.
        stdin = _stream(process.stdin)
        stdin.write(sent)
        stdin.flush()


def _forward(host: _Host, stream: str, block: bytes, emit: Callable[[Mapping[str, Any]], None]) -> None:
    """Forward a block of a node's output.

    Until the node's stub is ready, keep standard error for later, and omit standard output: a login's greeting.
    """
    if not host.is_ready:
        if stream == "stderr":
            host.trouble = (host.trouble + block)[-MAX_GREETING:]
            return
        host.head = host.head[-MAX_GREETING:] + block
        _, found, block = host.head.partition(READY)
        if not found:
            return
        host.is_ready = True  # The output before this mark is a login's greeting.
        if host.trouble:
            _emit_output(host, "stderr", host.trouble, emit)
    if block:
        _emit_output(host, stream, block, emit)


def _emit_output(host: _Host, stream: str, block: bytes, emit: Callable[[Mapping[str, Any]], None]) -> None:
    emit({"host": host.name, "stream": stream, "data": base64.b64encode(block).decode("ascii")})


def _finish(host: _Host, emit: Callable[[Mapping[str, Any]], None]) -> bool:
    """Emit the end of a node's command, as `fan_out` describes.

    Return whether it failed or the node was not reached.
    """
    _close(host.process)
    status = host.process.wait()
    # A status of 255 after the command has started is the command's own, or the connection broke.
    end: dict[str, Any] = {
        "host": host.name,
        "exit_code": status if status >= 0 else 128 - status,
        "reached": host.is_ready,
        "seconds": round(time.monotonic() - host.began, 3),
    }
    if not host.is_ready:
        end["trouble"] = (host.trouble or host.head).decode("utf-8", errors="replace")[-2000:]
    emit(end)
    return status != 0


def main() -> int:
    """Run the request on standard input, and print its results as JSON lines.

    Return 0 if the command succeeded on all nodes, 1 if not or if the reader of the output has gone away, 2 for an
    invalid request or an unreadable list of nodes, and 130 if the laptop has disconnected.
    """

    def emit(message: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    stdin = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115  # unbuffered: it is selected on
    try:
        request = RemoteCommand.from_line(_read_line(stdin))
        text = "" if request.master else Path(NODES_PATH).read_text(encoding="utf-8", errors="backslashreplace")
        hosts = request.hosts(text, lambda warning: emit({"warning": warning}))
        emit({"hosts": list(hosts)})
        ssh = str(Path(__file__).parents[1] / "bin" / "ssh")
        return 1 if fan_out(request, hosts, emit, stdin, ssh) else 0
    except (SpecError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # The reader has gone away.
            return 1
        print(describe(error), file=sys.stderr)
        return BAD_REQUEST
    except AbandonedError:
        return 130


def _read_line(stdin: IO[bytes]) -> bytes:
    """Read one line of any length. At the end of the input, the line may be incomplete or empty.

    The sender must wait after the line: bytes that have arrived with its end are also returned.
    """
    parts: list[bytes] = []
    while block := stdin.read(BLOCK):
        parts.append(block)
        if block.endswith(b"\n"):
            break
    return b"".join(parts)


if __name__ == "__main__":
    sys.exit(main())
