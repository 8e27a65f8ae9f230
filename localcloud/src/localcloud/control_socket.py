"""The control socket: the daemon's main thread answers requests of the command line, as JSON lines."""

from __future__ import annotations

import json
import logging
import queue
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from localcloud import lifecycle
from localcloud.cloud_paths import Layout
from localcloud.errors import LocalCloudError, UnknownInstanceError, error_text

log = logging.getLogger("localcloud.control_socket")

Message = dict[str, str]
Answer = dict[str, Any]

_READ_TIMEOUT_S: Final = 5.0
_ANSWER_TIMEOUT_S: Final = 60.0
_CLIENT_TIMEOUT_S: Final = 90.0


class ControlServer:
    """Accepts requests in a background thread. The thread that calls `answer_all` answers them.

    `act` returns the answer to a request. `announce` is called in the background thread when a request is waiting.
    """

    def __init__(self, path: Path, act: Callable[[Message], Answer], announce: Callable[[], None]) -> None:
        self._act, self._announce = act, announce
        self._pending: queue.SimpleQueue[tuple[Message, queue.SimpleQueue[Answer]]] = queue.SimpleQueue()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        path.chmod(0o600)
        self._socket.listen(16)
        threading.Thread(target=self._serve, name="control", daemon=True).start()

    def answer_all(self) -> bool:
        """Answer all waiting requests in the calling thread; return whether there were any. Errors become answers."""
        answered = False
        while not self._pending.empty():
            message, answer = self._pending.get()
            try:
                answer.put(self._act(message))
            except UnknownInstanceError as error:
                answer.put({"unknown": error.instance_id, "known": error.known})
            except (LocalCloudError, OSError) as error:
                answer.put({"failed": error_text(error)})
            answered = True
        return answered

    def close(self) -> None:
        """Stop accepting requests."""
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed: the daemon stops
            with connection:
                try:
                    answer_one(connection, self._forward)
                except (OSError, ValueError) as error:
                    # The client has disconnected (for example, after Ctrl-C) or sent an invalid request. Continue with
                    # the next one.
                    log.warning("cannot answer a request on the control socket: %s", error_text(error))

    def _forward(self, message: Message) -> Answer:
        """Queue a request for the main thread, and return its answer. A timeout becomes an answer with `failed`."""
        answer: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._pending.put((message, answer))
        self._announce()
        try:
            return answer.get(timeout=_ANSWER_TIMEOUT_S)
        except queue.Empty:
            return {
                "failed": f"the daemon of the embedded cloud did not answer within {_ANSWER_TIMEOUT_S:.0f} s; "
                "read its log with the command `logs`, then try again"
            }


def answer_one(connection: socket.socket, answer: Callable[[dict[str, str]], dict[str, Any]]) -> None:
    """Read one request, a line of JSON, and write what `answer` returns for it.

    Raises ValueError for an invalid request, and OSError if the client disconnects or sends nothing for 5 s.
    """
    connection.settimeout(_READ_TIMEOUT_S)
    with connection.makefile("rw", encoding="utf-8") as stream:
        request = json.loads(stream.readline())
        if not isinstance(request, dict):
            raise ValueError(f"the request {request!r} is not an object")
        stream.write(json.dumps(answer(request)) + "\n")


def request(layout: Layout, message: dict[str, str]) -> dict[str, Any]:
    """Send one request to the daemon; return its answer, for which it may need some time (90 s at most).

    Raises NotRunningError if the cloud is not running, UnknownInstanceError, or LocalCloudError for any other failure.
    """
    lifecycle.read_state(layout)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_CLIENT_TIMEOUT_S)
            connection.connect(str(layout.control))
            with connection.makefile("rw", encoding="utf-8") as stream:
                stream.write(json.dumps(message) + "\n")
                stream.flush()
                answer: dict[str, Any] = json.loads(stream.readline())
    except PermissionError:
        raise LocalCloudError(
            f"only root can use the embedded cloud {layout.name}; repeat the command with sudo"
        ) from None
    except (OSError, ValueError) as error:  # the daemon is stopping or hangs
        reason = error_text(error) if isinstance(error, OSError) else "it closed the connection"
        raise LocalCloudError(
            f"the embedded cloud {layout.name} does not answer ({reason}); read its log, {layout.log}, or stop it "
            f"with: python -m localcloud stop --name {layout.name}"
        ) from error
    if "unknown" in answer:
        raise UnknownInstanceError(answer["unknown"], answer["known"])
    if "failed" in answer:
        raise LocalCloudError(answer["failed"])
    return answer
