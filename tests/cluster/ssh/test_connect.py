"""Connecting: only host keys from the console are trusted, and errors include the fix."""

from __future__ import annotations

import getpass
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paramiko
import pytest

from cluster.errors import ConnectionFailedError
from cluster.ssh import user_keys
from cluster.ssh.connect import _Offer, open_connection
from cluster.ssh.host_keys import HostKey
from cluster.ssh.session_manager import Tunnel
from cluster.ssh.user_keys import UserKey
from cluster.ssh.user_settings import UserSettings
from tests.cluster.ssh.ssh_server import SshServer, connect_to


def keys_of(path: Path) -> tuple[UserKey, ...]:
    return user_keys.find(UserSettings(), path.parent, str(path))


@pytest.mark.parametrize(
    "kind", [paramiko.ECDSAKey.generate, lambda: paramiko.RSAKey.generate(2048)], ids=["same", "other"]
)
def test_host_with_another_key_is_rejected(
    server: SshServer, user_key: Path, kind: Callable[[], paramiko.PKey]
) -> None:
    other = kind()
    wanted = HostKey(algorithm=other.get_name(), blob=other.asbytes())
    with pytest.raises(ConnectionFailedError, match="not the master") as caught:
        connect_to(server, user_key, wanted)
    assert server.host_key.fingerprint in caught.value.what
    assert wanted.fingerprint in caught.value.what


def test_host_is_rejected_if_no_key_of_it_is_known(server: SshServer, user_key: Path) -> None:
    with pytest.raises(ConnectionFailedError, match=r"not the master.*the master's console shows none"):
        open_connection("127.0.0.1", "ec2-user", (), keys_of(user_key), port=server.port)


def test_refused_user_key_points_to_the_key_pair(server: SshServer, tmp_path: Path) -> None:
    paramiko.ECDSAKey.generate().write_private_key_file(str(tmp_path / "other"))
    with pytest.raises(ConnectionFailedError, match="rejects your SSH key") as caught:
        connect_to(server, tmp_path / "other")
    assert "key_name" in caught.value.remedy


def test_ssh_agent_gets_a_minute_to_ask_and_a_timeout_is_no_rejection() -> None:
    class Silent:
        def auth_publickey(self, user: str, key: object) -> None:
            raise paramiko.AuthenticationException("Authentication timeout.")

    agent_key: Any = object()
    keys = [UserKey(place="agent: me", algorithm="ssh-ed25519", blob=b"a", agent_key=agent_key)]
    transport: Any = Silent()
    with pytest.raises(ConnectionFailedError, match="no answer within 60 s to the key agent: me") as caught:
        _Offer("ubuntu", keys, "", "master").authenticate(transport)
    assert "approve" in caught.value.remedy


def test_connection_that_breaks_during_the_login_is_no_rejection() -> None:
    class Broken:
        def auth_publickey(self, user: str, key: object) -> None:
            raise EOFError

        def is_active(self) -> bool:
            return False

    agent_key: Any = object()
    keys = [UserKey(place="agent: me", algorithm="ssh-ed25519", blob=b"a", agent_key=agent_key)]
    transport: Any = Broken()
    with pytest.raises(ConnectionFailedError, match="the connection broke during the login"):
        _Offer("ubuntu", keys, "", "master").authenticate(transport)


def test_timeout_after_connecting_points_to_ssh_cidr(
    server: SshServer, user_key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.ssh.connect.CONNECT_TIMEOUT_S", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(ConnectionFailedError, match="the SSH handshake at this port failed") as caught,
    ):
        port = silent.getsockname()[1]
        open_connection("127.0.0.1", "ec2-user", [server.host_key], keys_of(user_key), port=port)
    assert "ssh_cidr" in caught.value.remedy


def test_connection_goes_through_a_tunnel_and_closes_it(server: SshServer, user_key: Path) -> None:
    relay = (
        "import socket, sys, threading, os\n"
        "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "print('Starting session with SessionId: x', flush=True)\n"
        "def up():\n"
        "    while b := os.read(0, 4096): s.sendall(b)\n"
        "    s.shutdown(socket.SHUT_RDWR)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while b := s.recv(4096): os.write(1, b)\n"
    )
    through = Tunnel([sys.executable, "-c", relay, str(server.port)])
    user, host_keys = getpass.getuser(), [server.host_key]
    with open_connection("i-0123", user, host_keys, keys_of(user_key), through=through) as master:
        assert master.run(["echo", "hello"]).text == "hello\n"
    assert through._process.returncode is not None


def test_timeout_over_tunnel_does_not_blame_ssh_cidr(user_key: Path) -> None:
    through = Tunnel(["true"])
    with pytest.raises(ConnectionFailedError) as caught:
        open_connection("i-0123", "me", [], keys_of(user_key), through=through)
    assert "ssh_cidr" not in str(caught.value) + caught.value.remedy
    through.close()
