"""WebSocket over a connected pair of sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localcloud.sessions.websocket import BINARY, TEXT, WebSocket, WebSocketError, accept, connect


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


@settings(max_examples=30)
@given(data=st.binary(max_size=300), repeated=st.sampled_from([1, 1, 1, 250]), kind=st.sampled_from([TEXT, BINARY]))
def test_any_message_arrives_as_it_was_sent_from_either_side(data: bytes, repeated: int, kind: int) -> None:
    left, right = socket.socketpair()
    for sender, receiver in (
        (WebSocket(left, is_client=True), WebSocket(right, is_client=False)),
        (WebSocket(right, is_client=False), WebSocket(left, is_client=True)),
    ):
        sender.send(data * repeated, kind)
        sender.send(b"next", kind)
        assert receiver.receive() == (kind, data * repeated)
        assert receiver.receive() == (kind, b"next")
    left.close()
    right.close()


def test_a_message_in_several_frames_is_one_message_and_a_ping_within_it_is_answered() -> None:
    left, right = socket.socketpair()
    left.sendall(b"\x02\x03abc" + b"\x89\x02hi" + b"\x80\x03def")
    assert WebSocket(right, is_client=False).receive() == (BINARY, b"abcdef")
    assert left.recv(100) == b"\x8a\x02hi"
    left.close()
    right.close()


def test_a_closed_connection_ends_what_is_received(pair: tuple[WebSocket, WebSocket, str]) -> None:
    pair[0].close()
    assert pair[1].receive() is None


def test_a_connection_that_breaks_within_a_message_is_an_error() -> None:
    left, right = socket.socketpair()
    left.sendall(b"\x82\x05ab")
    left.close()
    with pytest.raises(WebSocketError, match="broke off"):
        WebSocket(right, is_client=False).receive()
    right.close()


@pytest.mark.parametrize("request_line", [b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n\r\n"])
def test_who_does_not_ask_for_a_websocket_gets_none(request_line: bytes) -> None:
    left, right = socket.socketpair()
    left.sendall(request_line)
    with pytest.raises(WebSocketError, match="opens no WebSocket"):
        accept(right)
    assert left.recv(100).startswith(b"HTTP/1.1 400")
    left.close()
    right.close()


def test_a_frame_that_would_fill_the_memory_is_refused() -> None:
    left, right = socket.socketpair()
    left.sendall(b"\x82\x7f" + (1 << 40).to_bytes(8, "big"))
    with pytest.raises(WebSocketError, match="a frame of"):
        WebSocket(right, is_client=False).receive()
    left.close()
    right.close()
