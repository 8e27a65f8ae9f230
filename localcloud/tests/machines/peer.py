"""The other end of a socket of QEMU's, which answers as it was told beforehand."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

Answer = Sequence[Any] | bytes | Callable[[dict[str, Any]], Sequence[Any]]
"""What follows a request: messages, bytes after which the connection ends, or a function of the request."""


@contextlib.contextmanager
def peer(path: Path, answers: Sequence[Answer]) -> Iterator[list[dict[str, Any]]]:
    """Answer the requests of one client, one after the other; yield the list of those that came."""
    requests: list[dict[str, Any]] = []
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(1)

    def serve() -> None:
        with contextlib.suppress(OSError, ValueError):
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                for answer in answers:
                    requests.append(json.loads(lines.readline()))
                    if isinstance(answer, bytes):
                        connection.sendall(answer)
                        return
                    messages = answer(requests[-1]) if callable(answer) else answer
                    connection.sendall(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
                lines.readline()  # until the client leaves

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield requests
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
