"""A whole session: the laptop's plugin or a client, the relay, the agent, and a server on the host."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localcloud.sessions import service as sessions
from localcloud.sessions.service import REQUIRED_ACTIONS, Relay, Session, SessionService
from testbed import MASTER

PACKAGE = str(Path(sessions.__file__).parents[2])


class OwnNetwork:
    """Fake network of a host: this machine's network."""

    def enter(self, action: Callable[[], Any]) -> Any:
        return action()


@dataclasses.dataclass
class FakeHost:
    instance: Any
    network: Any


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[SessionService]:
    listener = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setattr(sessions, "API_ADDRESS", "127.0.0.1")
    monkeypatch.setattr(sessions, "SESSIONS_PORT", listener.getsockname()[1])
    host = FakeHost(instance=dataclasses.replace(MASTER, role_name="node"), network=OwnNetwork())
    made = SessionService(relay=Relay(listener), hosts={MASTER.id: host}, denied=lambda *_: [])
    yield made
    made.relay.close()


@pytest.fixture
def session(service: SessionService) -> Iterator[Session]:
    """Return a session to a server that sends its input back in capitals."""

    def shout() -> None:
        with contextlib.suppress(OSError):
            connection, _ = server.accept()
            with connection:
                while block := connection.recv(1 << 16):
                    connection.sendall(block.upper())

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=shout, daemon=True).start()
        made = service.start(MASTER.id, server.getsockname()[1])
        yield made
        service.relay.end(made.id)


def connect(token: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", sessions.SESSIONS_PORT), timeout=60)
    connection.sendall(token.encode())
    return connection


def is_rejected(token: str) -> bool:
    with connect(token) as connection:
        try:
            return not connection.recv(1)
        except ConnectionResetError:
            return True


def test_bytes_flow_both_ways_complete_and_in_order(session: Session) -> None:
    sent = bytes(range(97, 123)) * 40_000
    with connect(session.client_token) as client:

        def feed() -> None:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)

        feeder = threading.Thread(target=feed)
        feeder.start()
        with client.makefile("rb") as stream:
            assert stream.read() == sent.upper()
        feeder.join(timeout=60)


def test_token_opens_one_connection_of_its_session(session: Session) -> None:
    assert is_rejected("x" * 43) and is_rejected("\xff" * 22)
    with connect(session.client_token) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"A"
        assert is_rejected(session.client_token)


def test_terminated_session_closes_its_connections_and_accepts_no_more(
    service: SessionService, session: Session
) -> None:
    with connect(session.client_token) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"A"
        assert service.relay.end(session.id)
        assert not client.recv(1)
    assert not service.relay.end(session.id)
    assert is_rejected(session.client_token)


def test_session_to_a_closed_port_ends(service: SessionService) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert is_rejected(service.start(MASTER.id, port).client_token)


def plugin(answer: str, region: str = "us-east-1") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "localcloud.sessions.plugin", answer, region, "StartSession", "", "{}", ""],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": PACKAGE},
    )  # fmt: skip


def test_plugin_connects_its_standard_input_and_output(
    service: SessionService, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"SessionId": session.id, "TokenValue": session.client_token, "StreamUrl": service.url()}
    monkeypatch.setenv("AWS_SSM_START_SESSION_RESPONSE", json.dumps(answer))
    output, errors = plugin("AWS_SSM_START_SESSION_RESPONSE").communicate(b"ssh-2.0-hello\n", timeout=60)
    assert output == f"\nStarting session with SessionId: {session.id}\nSSH-2.0-HELLO\n".encode()
    assert errors == b""


def test_plugin_rejects_an_answer_of_aws() -> None:
    answer = {"SessionId": "s", "TokenValue": "t", "StreamUrl": "wss://ssmmessages.us-east-1.amazonaws.com/x"}
    started = plugin(json.dumps(answer))
    assert b"use AWS's session-manager-plugin" in started.communicate(timeout=60)[1]
    assert started.returncode == 1


class CutNetwork:
    """Fake network of a host that reaches no address."""

    def enter(self, action: Callable[[], Any]) -> Any:
        raise TimeoutError("timed out")


@pytest.mark.parametrize(
    ("role", "allowed", "said"),
    [
        ("", REQUIRED_ACTIONS, "it has no role; launch it with an instance profile"),
        ("node", REQUIRED_ACTIONS[:-1], "its role node does not allow ssmmessages:OpenDataChannel"),
        ("node", REQUIRED_ACTIONS, "it cannot connect to Session Manager: timed out; check its route to the internet"),
    ],
)
def test_agent_needs_role_permissions_and_internet(
    service: SessionService, role: str, allowed: tuple[str, ...], said: str
) -> None:
    host = FakeHost(instance=dataclasses.replace(MASTER, role_name=role), network=CutNetwork())
    found = dataclasses.replace(
        service,
        hosts={MASTER.id: host},
        denied=lambda name, instance, actions: [a for a in actions if a not in allowed],
    )
    assert found.reason_not_connected(MASTER.id).startswith(said)
    with pytest.raises(sessions.NotConnectedError, match=f"{MASTER.id} is not connected"):
        found.start(MASTER.id, 22)


def test_unknown_instance_is_not_connected(service: SessionService) -> None:
    assert service.reason_not_connected("i-0123456789abcdef0") == "no running instance has this id"
