"""Connections from the cloud to hosts of the real internet, by name."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from localcloud.network.addressing import passage_addresses
from localcloud.network.internet import pass_on


def listen(port: int = 0) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


@contextlib.contextmanager
def echo() -> Iterator[int]:
    """Yield the port of a server that reads all input, and then sends it back twice."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            data = b"".join(iter(lambda: connection.recv(65536), b""))
            connection.sendall(data * 2)

    with listen() as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(timeout=60)


def entrance(port: int) -> socket.socket:
    """Forward connections to a port of this machine; return a forwarded connection."""
    listener = listen()
    pass_on([(listener, "localhost", port)])
    return socket.create_connection(listener.getsockname(), timeout=60)


def test_bytes_flow_both_ways_and_directions_close_separately() -> None:
    sent = b"GET / HTTP/1.1\r\n" + bytes(range(256)) * 2000
    with echo() as port, entrance(port) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        assert b"".join(iter(lambda: client.recv(65536), b"")) == sent * 2


def test_unreachable_host_closes_connection() -> None:
    with listen() as closed:
        port = closed.getsockname()[1]
    with entrance(port) as client, contextlib.suppress(ConnectionResetError):
        client.sendall(b"x")
        assert client.recv(1) == b""


def test_each_host_has_its_own_address() -> None:
    found = passage_addresses(["b.example.org", "a.example.org", "b.example.org"])
    assert found == {"a.example.org": "198.18.255.129", "b.example.org": "198.18.255.130"}
