from __future__ import annotations

import socket

from agent.launch.elastic.connections import Connections


def test_the_other_end_of_what_was_opened_within_the_block_notices_at_once_and_no_other() -> None:
    connections = Connections()
    with socket.create_server(("127.0.0.1", 0)) as server:
        before = socket.create_connection(server.getsockname())
        peer_before, _ = server.accept()
        with connections.opening():
            within = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
    with before, within, peer, peer_before:
        peer.settimeout(30)
        assert connections.end() == 1
        assert peer.recv(1) == b"", "it was shut down"
        before.sendall(b"x")
        assert peer_before.recv(1) == b"x", "this one was not"
        assert connections.end() == 0
