"""WebSocket over a connected pair of sockets."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localcloud.sessions.websocket import WebSocket, WebSocketError, accept, connect


@pytest.fixture
def pair() -> Iterator[tuple[WebSocket, WebSocket, str]]:
    """Yield a client, its server, and the path that the server was asked for."""
    ours, theirs = socket.socketpair()
    served: list[tuple[WebSocket, str]] = []
    server = threading.Thread(target=lambda: served.append(accept(theirs)))
    server.start()
    client = connect(ours, "198.18.0.1:81", "/v1/data-channel/s?role=subscribe")
    server.join(timeout=60)
    yield client, *served[0]
    client.close()
    served[0][0].close()


def test_the_path_that_was_asked_for_arrives(pair: tuple[WebSocket, WebSocket, str]) -> None:
    assert pair[2] == "/v1/data-channel/s?role=subscribe"


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=st.binary(max_size=300) | st.text(max_size=300), repeated=st.sampled_from([1, 1, 1, 250]))
def test_any_message_arrives_as_it_was_sent_from_either_side(
    pair: tuple[WebSocket, WebSocket, str], message: bytes | str, repeated: int
) -> None:
    for sender, receiver in ((pair[0], pair[1]), (pair[1], pair[0])):
        sender.send(message * repeated)
        sender.send(b"next")
        assert receiver.receive() == message * repeated
        assert receiver.receive() == b"next"


def raw_client() -> tuple[socket.socket, WebSocket]:
    """Return a client's socket after its handshake, and its server."""
    left, right = socket.socketpair()
    left.sendall(
        b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    server, _ = accept(right)
    assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in left.recv(1000)
    return left, server


NO_MASK = b"\0\0\0\0"


def test_a_message_in_several_frames_is_one_message_and_a_ping_within_it_is_answered() -> None:
    left, server = raw_client()
    left.sendall(b"\x02\x83" + NO_MASK + b"abc" + b"\x89\x82" + NO_MASK + b"hi" + b"\x80\x83" + NO_MASK + b"def")
    assert server.receive() == b"abcdef"
    assert left.recv(100) == b"\x8a\x02hi"
    left.close()
    server.close()


def test_a_closed_connection_ends_what_is_received(pair: tuple[WebSocket, WebSocket, str]) -> None:
    pair[0].close()
    assert pair[1].receive() is None


def test_a_connection_that_breaks_within_a_message_is_an_error() -> None:
    left, server = raw_client()
    left.sendall(b"\x82\x85" + NO_MASK + b"ab")
    left.close()
    with pytest.raises(WebSocketError, match="broke off"):
        server.receive()
    server.close()


@pytest.mark.parametrize("request_line", [b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n\r\n"])
def test_who_does_not_ask_for_a_websocket_gets_none(request_line: bytes) -> None:
    left, right = socket.socketpair()
    left.sendall(request_line)
    with pytest.raises(WebSocketError):
        accept(right)
    assert left.recv(100).startswith(b"HTTP/1.1 400")
    left.close()
    right.close()


def test_a_message_that_would_fill_the_memory_is_refused() -> None:
    left, server = raw_client()
    left.sendall(b"\x82\xff" + (1 << 40).to_bytes(8, "big") + NO_MASK)

    def flood() -> None:
        with contextlib.suppress(OSError):
            while True:
                left.sendall(bytes(1 << 20))

    sender = threading.Thread(target=flood)
    sender.start()
    with pytest.raises(WebSocketError, match="a message of more than"):
        server.receive()
    server.close()
    sender.join(timeout=60)
    left.close()
