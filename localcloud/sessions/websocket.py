"""The part of WebSocket (RFC 6455) that data channels use: whole messages, text or binary, over a connected socket."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import struct
import threading
from typing import Final

from localcloud.errors import LocalCloudError

TEXT: Final = 0x1
BINARY: Final = 0x2
_CONTINUATION, _CLOSE, _PING, _PONG = 0x0, 0x8, 0x9, 0xA
_FINAL, _MASKED = 0x80, 0x80
_MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_LONGEST_HEAD: Final = 1 << 14
_LONGEST_MESSAGE: Final = 1 << 24


class WebSocketError(LocalCloudError, ConnectionError):
    """Report a peer that does not speak WebSocket, or broke off within a message."""


class WebSocket:
    """Send and receive messages. Several threads may send; one may receive."""

    def __init__(self, connection: socket.socket, *, is_client: bool) -> None:
        self._connection, self._is_client = connection, is_client
        self._sending = threading.Lock()
        self._buffer = bytearray()

    def send(self, data: bytes, kind: int = BINARY) -> None:
        """Send one message. Raises OSError where the connection is gone."""
        head = bytearray([_FINAL | kind])
        mask = _MASKED if self._is_client else 0
        if len(data) < 126:
            head.append(mask | len(data))
        elif len(data) < 1 << 16:
            head += struct.pack(">BH", mask | 126, len(data))
        else:
            head += struct.pack(">BQ", mask | 127, len(data))
        if self._is_client:
            key = os.urandom(4)
            head += key
            data = _masked(data, key)
        with self._sending:
            self._connection.sendall(bytes(head) + data)

    def receive(self) -> tuple[int, bytes] | None:
        """Return the next message's kind and data; None once the peer has ended the connection."""
        whole, first = bytearray(), 0
        while True:
            head = self._read(2, may_end=not whole)
            if head is None:
                return None
            kind, data = head[0] & 0x0F, self._payload(head[1])
            if kind == _CLOSE:
                return None
            if kind == _PING:
                self.send(data, _PONG)
            elif kind != _PONG:
                first = first or kind
                whole += data
                if len(whole) > _LONGEST_MESSAGE:
                    raise WebSocketError(f"a message of more than {_LONGEST_MESSAGE} bytes")
                if head[0] & _FINAL:
                    return first, bytes(whole)

    def _payload(self, second: int) -> bytes:
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack(">H", self._exactly(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self._exactly(8))
        if length > _LONGEST_MESSAGE:
            raise WebSocketError(f"a frame of {length} bytes")
        key = self._exactly(4) if second & _MASKED else b""
        data = self._exactly(length)
        return _masked(data, key) if key else data

    def _exactly(self, count: int) -> bytes:
        found = self._read(count, may_end=False)
        return b"" if found is None else found

    def _read(self, count: int, *, may_end: bool) -> bytes | None:
        while len(self._buffer) < count:
            block = self._connection.recv(1 << 16)
            if not block:
                if may_end and not self._buffer:
                    return None
                raise WebSocketError("the connection broke off within a message")
            self._buffer += block
        found = bytes(self._buffer[:count])
        del self._buffer[:count]
        return found

    def close(self) -> None:
        """End the connection; whoever waits in `receive`, on either side, returns."""
        try:
            self.send(b"", _CLOSE)
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # The peer was faster.
        self._connection.close()


def accept(connection: socket.socket) -> tuple[WebSocket, str]:
    """Answer a client's opening; return the WebSocket and the path that was asked for. Raises WebSocketError."""
    head, rest = _head(connection)
    request, *lines = head.split("\r\n")
    words = request.split(" ")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    key = fields.get("sec-websocket-key", "")
    if len(words) != 3 or words[0] != "GET" or fields.get("upgrade", "").lower() != "websocket" or not key:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        raise WebSocketError(f"{request[:80]!r} opens no WebSocket")
    answer = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    connection.sendall("\r\n".join([*answer, f"Sec-WebSocket-Accept: {_proof(key)}", "", ""]).encode())
    opened = WebSocket(connection, is_client=False)
    opened._buffer += rest
    return opened, words[1]


def connect(connection: socket.socket, host: str, path: str) -> WebSocket:
    """Open a WebSocket over a connected socket. Raises WebSocketError where the server refuses."""
    key = base64.b64encode(os.urandom(16)).decode()
    request = [f"GET {path} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade"]
    request += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
    connection.sendall("\r\n".join(request).encode())
    head, rest = _head(connection)
    if not head.startswith("HTTP/1.1 101") or _proof(key) not in head:
        raise WebSocketError(f"{host} answers {head.splitlines()[0]!r}")
    opened = WebSocket(connection, is_client=True)
    opened._buffer += rest
    return opened


def _head(connection: socket.socket) -> tuple[str, bytes]:
    """Read up to the empty line; return what stands before it, and what came after it."""
    read = b""
    while b"\r\n\r\n" not in read:
        block = connection.recv(4096)
        if not block or len(read) > _LONGEST_HEAD:
            raise WebSocketError("the peer does not speak HTTP")
        read += block
    head, _, rest = read.partition(b"\r\n\r\n")
    return head.decode("latin-1"), rest


def _proof(key: str) -> str:
    return base64.b64encode(hashlib.sha1(key.encode() + _MAGIC, usedforsecurity=False).digest()).decode()


def _masked(data: bytes, key: bytes) -> bytes:
    if not data:
        return data
    repeated = (key * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(data), "big")
