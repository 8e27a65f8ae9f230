"""A session from end to end in one process: client, relay, agent, and a server that the agent connects to."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from localcloud.sessions import agent, messages
from localcloud.sessions.channel import Channel
from localcloud.sessions.relay import PATH, Relay, Session
from localcloud.sessions.websocket import WebSocket, connect
from sessions.conftest import ROOT


@pytest.fixture
def relay() -> Iterator[Relay]:
    listener = socket.create_server(("127.0.0.1", 0))
    made = Relay(listener)
    yield made
    made.close()


def dial(relay: Relay, session: Session, token: str) -> WebSocket:
    connection = socket.create_connection(relay._listener.getsockname(), timeout=60)
    opened = connect(connection, "relay", f"{PATH}{session.id}?role=subscribe")
    opened.send(messages.open_data_channel(token, "1"))
    connection.settimeout(60)
    return opened


@pytest.fixture
def session(relay: Relay) -> Iterator[Session]:
    """Return a session whose agent leads to a server that sends back, in capitals, what it gets."""
    made = relay.open("i-1")
    server = socket.create_server(("127.0.0.1", 0))

    def shout() -> None:
        with contextlib.suppress(OSError):
            connection, _ = server.accept()
            with connection:
                while block := connection.recv(1 << 16):
                    connection.sendall(block.upper())

    def serve() -> None:
        agent.serve(
            dial(relay, made, made.agent_token),
            session_id=made.id,
            target="i-1",
            port=22,
            dial=lambda: socket.create_connection(server.getsockname(), timeout=60),
        )

    threads = [threading.Thread(target=shout, daemon=True), threading.Thread(target=serve, daemon=True)]
    for thread in threads:
        thread.start()
    yield made
    relay.end(made.id)
    server.close()
    threads[1].join(timeout=60)


def agree(channel: Channel) -> Iterator[messages.Message]:
    """Do a client's part of the handshake; return the stream after it."""
    stream = channel.receive()
    request = next(stream)
    assert request.payload_type == messages.HANDSHAKE_REQUEST
    channel.send(messages.handshake_response(request.document(), "1"), messages.HANDSHAKE_RESPONSE)
    assert next(stream).payload_type == messages.HANDSHAKE_COMPLETE
    return stream


def test_bytes_go_both_ways_in_order_and_whole(relay: Relay, session: Session) -> None:
    channel = Channel(dial(relay, session, session.client_token), messages.INPUT)
    stream = agree(channel)
    sent = bytes(range(97, 123)) * 40_000

    def feed() -> None:
        for start in range(0, len(sent), 10_007):
            channel.send(sent[start : start + 10_007])

    feeder = threading.Thread(target=feed)
    feeder.start()
    got = bytearray()
    while len(got) < len(sent):
        got += next(stream).payload
    feeder.join(timeout=60)
    assert bytes(got) == sent.upper()
    channel.close()


def test_the_clients_flag_ends_the_session(relay: Relay, session: Session) -> None:
    channel = Channel(dial(relay, session, session.client_token), messages.INPUT)
    stream = agree(channel)
    channel.send(messages.TERMINATE, messages.FLAG)
    assert list(stream) == []
    channel.close()


def test_a_wrong_token_opens_nothing_and_a_right_one_only_once(relay: Relay, session: Session) -> None:
    assert dial(relay, session, "guessed").receive() is None
    first = dial(relay, session, session.client_token)
    assert first.receive() is not None
    assert _is_refused(lambda: dial(relay, session, session.client_token))


def _is_refused(attempt: Callable[[], WebSocket]) -> bool:
    try:
        return attempt().receive() is None
    except OSError:
        return True


def test_an_ended_session_lets_nobody_in(relay: Relay, session: Session) -> None:
    assert relay.end(session.id)
    assert not relay.end(session.id)
    assert _is_refused(lambda: dial(relay, session, session.client_token))


def test_the_plugin_makes_a_stream_of_its_standard_input_and_output(relay: Relay, session: Session) -> None:
    host, port = relay._listener.getsockname()
    answer = (
        f'{{"SessionId": "{session.id}", "TokenValue": "{session.client_token}", '
        f'"StreamUrl": "ws://{host}:{port}{PATH}{session.id}?role=publish_subscribe"}}'
    )
    plugin = subprocess.Popen(
        [sys.executable, "-m", "localcloud.sessions.plugin", "AWS_SSM_START_SESSION_RESPONSE", "us-east-1",
         "StartSession", "", "{}", ""],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
        env={**os.environ, "AWS_SSM_START_SESSION_RESPONSE": answer},
    )  # fmt: skip
    assert plugin.stdin is not None
    assert plugin.stdout is not None
    plugin.stdin.write(b"ssh-2.0-hello\n")
    plugin.stdin.flush()
    lines = [plugin.stdout.readline() for _ in range(3)]
    assert lines == [b"\n", f"Starting session with SessionId: {session.id}\n".encode(), b"SSH-2.0-HELLO\n"]
    plugin.stdin.close()
    assert plugin.wait(timeout=60) == 0
    plugin.stdout.close()


def test_the_plugin_says_what_is_wrong_with_an_answer_that_is_not_of_this_cloud() -> None:
    answer = '{"SessionId": "s", "TokenValue": "t", "StreamUrl": "wss://ssmmessages.us-east-1.amazonaws.com/x"}'
    done = subprocess.run(
        [sys.executable, "-m", "localcloud.sessions.plugin", answer, "us-east-1", "StartSession"],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 1
    assert "use AWS's own session-manager-plugin" in done.stderr
