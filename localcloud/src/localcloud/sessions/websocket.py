"""WebSocket over a connected socket: wsproto's frames and handshakes, and the reading, writing and locking around it.

wsproto and not websockets, whose import takes twice the processor time (60 against 33 ms), which each SSH connection
through the plugin would pay, and whose server's threads outlive a daemon that fails.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from typing import Final

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Message,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.utilities import ProtocolError

from localcloud.errors import LocalCloudError

_LONGEST_MESSAGE: Final = 1 << 24


class WebSocketError(LocalCloudError, ConnectionError):
    """Report a peer that does not speak WebSocket, or a connection that broke within a message."""


class WebSocket:
    """Send and receive messages. Several threads may send; one may receive."""

    def __init__(self, connection: socket.socket, kind: ConnectionType) -> None:
        self._connection, self._protocol = connection, WSConnection(kind)
        self._send_lock = threading.Lock()
        self._events: deque[Event] = deque()

    def send(self, message: bytes | str) -> None:
        """Send one message, text or binary. Raises OSError where the connection is gone."""
        self.send_event(TextMessage(message) if isinstance(message, str) else BytesMessage(message))

    def receive(self) -> bytes | str | None:
        """Return the next message; None once the peer has ended the connection."""
        parts: list[bytes | str] = []
        while True:
            event = self.next_event()
            if isinstance(event, CloseConnection):
                if parts:
                    raise WebSocketError("the connection broke off within a message")
                return None
            if isinstance(event, Ping):
                self.send_event(event.response())
            elif isinstance(event, Message):
                parts.append(event.data)
                if sum(map(len, parts)) > _LONGEST_MESSAGE:
                    raise WebSocketError(f"a message of more than {_LONGEST_MESSAGE} bytes")
                if event.message_finished:
                    return parts[0][:0].join(parts)  # type: ignore[arg-type]  # all of them are text, or all bytes

    def close(self) -> None:
        """End the connection; `receive` returns on both sides."""
        try:
            self.send_event(CloseConnection(code=1000))
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # The peer was faster.
        self._connection.close()

    def send_event(self, event: Event) -> None:
        """Send one event of the protocol. Raises BrokenPipeError after the end of the connection."""
        with self._send_lock:
            try:
                data = self._protocol.send(event)
            except ProtocolError as error:
                raise BrokenPipeError(str(error)) from None
            self._connection.sendall(data)

    def next_event(self) -> Event:
        """Return the next event of the protocol. Raises WebSocketError where the peer does not speak it."""
        while not self._events:
            data = self._connection.recv(1 << 16)
            if not data and self._protocol.connection is None:
                raise WebSocketError("the connection ended before it was a WebSocket")
            try:
                self._protocol.receive_data(data or None)
            except ProtocolError as error:
                raise WebSocketError(str(error)) from None
            self._events.extend(self._protocol.events())
        return self._events.popleft()


def accept(connection: socket.socket) -> tuple[WebSocket, str]:
    """Answer a client's handshake; return the WebSocket and the path of the request. Raises WebSocketError."""
    opened = WebSocket(connection, ConnectionType.SERVER)
    try:
        request = opened.next_event()
        if not isinstance(request, Request):
            raise WebSocketError(f"{request!r} is not a WebSocket handshake")
    except WebSocketError:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        raise
    opened.send_event(AcceptConnection())
    return opened, request.target


def connect(connection: socket.socket, host: str, path: str) -> WebSocket:
    """Open a WebSocket over a connected socket. Raises WebSocketError where the server refuses."""
    opened = WebSocket(connection, ConnectionType.CLIENT)
    opened.send_event(Request(host=host, target=path))
    answer = opened.next_event()
    if isinstance(answer, RejectConnection):
        raise WebSocketError(f"{host} answers {answer.status_code}")
    return opened
