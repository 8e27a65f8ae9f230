"""Requests of JSON over a socket of QEMU's: to its monitor, and to the agent in a machine."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import TracebackType
from typing import Any

from localcloud.errors import LocalCloudError


class NoAnswerError(LocalCloudError, ConnectionError):
    """Report a machine that does not answer. Carries `path` of the socket."""

    def __init__(self, path: Path, why: object) -> None:
        self.path = path
        super().__init__(f"the machine does not answer at {path}: {why}; is it still booting?")


class RefusedError(LocalCloudError):
    """Report a request that was answered by an error."""


class JsonSocket:
    """A connection, on which one request follows the answer to another."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise NoAnswerError(path, error) from None
        self._lines = self._socket.makefile("rb")

    def __enter__(self) -> JsonSocket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lines.close()
        self._socket.close()

    def request(self, command: str, **arguments: Any) -> Any:
        """Send a request and return what it returns. Raises NoAnswerError or RefusedError."""
        request = {"execute": command, **({"arguments": arguments} if arguments else {})}
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            while True:
                message = self._receive()
                if "error" in message:
                    raise RefusedError(f"{command}: {message['error'].get('desc', message['error'])}")
                if "return" in message:
                    return message["return"]
        except (OSError, ValueError) as error:
            raise NoAnswerError(self._path, error) from None

    def next_return(self) -> Any:
        """Return what the next answer returns, to whatever request."""
        try:
            return self._receive().get("return")
        except (OSError, ValueError) as error:
            raise NoAnswerError(self._path, error) from None

    def _receive(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise ConnectionResetError("the connection was closed")
        message: dict[str, Any] = json.loads(line)
        return message
