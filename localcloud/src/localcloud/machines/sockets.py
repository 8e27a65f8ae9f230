"""Sockets of a QEMU machine: its monitor, and the agent in the machine, which runs commands without the network.

https://www.qemu.org/docs/master/interop/qmp-spec.html, https://qemu-project.gitlab.io/qemu/interop/qemu-ga-ref.html.
"""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from localcloud.errors import LocalCloudError, error_text

_ANSWER_S: Final = 30.0
"""Maximum time for an answer of the agent. Emulated machines are slow."""
_MONITOR_ANSWER_S: Final = 5.0
_PAUSE_S: Final = 0.2


class NoAnswerError(LocalCloudError, ConnectionError):
    """A machine does not answer. Carries `path` of the socket."""

    def __init__(self, path: Path, why: str) -> None:
        self.path = path
        super().__init__(f"the machine does not answer at {path}: {why}; if it is still booting, try again later")


class RefusedError(LocalCloudError):
    """A machine's monitor or agent answered a request with an error."""


class JsonSocket:
    """A connection for JSON requests, one at a time."""

    def __init__(self, path: Path, connection: socket.socket, lines: BinaryIO) -> None:
        self._path, self._socket, self._lines = path, connection, lines

    def request(self, command: str, **arguments: Any) -> Any:
        """Send a request and return its result. Raises NoAnswerError or RefusedError."""
        request = {"execute": command, **({"arguments": arguments} if arguments else {})}
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise NoAnswerError(self._path, error_text(error)) from None
        return self.result(command)

    def result(self, command: str) -> Any:
        """Return the next result. Greetings and events are skipped. Raises NoAnswerError or RefusedError.

        `command` is only for the error message.
        """
        try:
            while line := self._lines.readline():
                message = json.loads(line)
                if "error" in message:
                    raise RefusedError(
                        f"the machine rejected {command}: {message['error'].get('desc', message['error'])}"
                    )
                if "return" in message:
                    return message["return"]
        except OSError as error:
            raise NoAnswerError(self._path, error_text(error)) from None
        except ValueError:
            raise NoAnswerError(self._path, "its answer is not JSON") from None
        raise NoAnswerError(self._path, "the connection was closed")


@contextlib.contextmanager
def connected(path: Path, timeout_s: float) -> Iterator[JsonSocket]:
    """Connect to a machine's socket within a block. Each operation on it times out after `timeout_s` seconds.

    Raises NoAnswerError.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(path))
        except OSError as error:
            raise NoAnswerError(path, error_text(error)) from None
        with connection.makefile("rb") as lines:
            yield JsonSocket(path, connection, lines)


def power_down(path: Path) -> None:
    """Press a machine's power button, as EC2 does, so that its system shuts down. `path`: socket of its monitor.

    Raises NoAnswerError or RefusedError.
    """
    with connected(path, _MONITOR_ANSWER_S) as monitor:
        monitor.request("qmp_capabilities")
        monitor.request("system_powerdown")


def execute(path: Path, command: Sequence[str], answer_s: float = _ANSWER_S) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a machine as root, without input; return its result. `path`: socket of the machine's agent.

    Waits until the command exits. The status is 128 plus the signal's number if a signal killed it. Raises
    NoAnswerError if the agent does not answer within `answer_s` seconds, or RefusedError, for example if the command
    does not exist.
    """
    with connected(path, answer_s) as agent:
        # Skip answers to a previous client that has disconnected.
        token = secrets.randbelow(1 << 31)
        deadline = time.monotonic() + answer_s
        found = agent.request("guest-sync", id=token)
        while found != token:
            if time.monotonic() > deadline:
                raise NoAnswerError(path, "it is serving another client")
            with contextlib.suppress(RefusedError):
                found = agent.result("guest-sync")
        started = agent.request("guest-exec", path=command[0], arg=list(command[1:]), **{"capture-output": True})
        while not (status := agent.request("guest-exec-status", pid=started["pid"]))["exited"]:
            time.sleep(_PAUSE_S)
    # A program that was killed by a signal has no exit code. Use the shells' code.
    code = int(status["exitcode"]) if "exitcode" in status else 128 + int(status.get("signal", 0))
    output, errors = (base64.b64decode(status.get(key, "")) for key in ("out-data", "err-data"))
    return subprocess.CompletedProcess(command, code, output, errors)
