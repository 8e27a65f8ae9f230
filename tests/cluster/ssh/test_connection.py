"""Facts about the connection: only the console's host keys are trusted, and failures say what to do."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from cluster.errors import ConnectionFailedError, RemoteError
from cluster.ssh.connection import Master, SilenceError, open_connection, read_host_keys, remote_line
from cluster.ssh.host_keys import HostKey
from cluster.ssh.session_manager import Tunnel


class _Interface(paramiko.ServerInterface):  # type: ignore[misc]  # paramiko has no types
    def __init__(self, allowed: paramiko.PKey) -> None:
        self._allowed = allowed

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return int(paramiko.OPEN_SUCCEEDED)

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return int(paramiko.AUTH_SUCCESSFUL if key == self._allowed else paramiko.AUTH_FAILED)

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=_execute, args=(channel, command.decode()), daemon=True).start()
        return True


def _execute(channel: paramiko.Channel, command: str) -> None:
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )

    def errors() -> None:
        while process.stderr and (block := os.read(process.stderr.fileno(), 1 << 15)):
            channel.sendall_stderr(block)

    def inputs() -> None:
        while block := channel.recv(1 << 15):
            with contextlib.suppress(BrokenPipeError):
                if process.stdin:
                    process.stdin.write(block)
        with contextlib.suppress(BrokenPipeError):
            if process.stdin:
                process.stdin.close()

    threading.Thread(target=inputs, daemon=True).start()
    stderr = threading.Thread(target=errors, daemon=True)
    stderr.start()
    with contextlib.suppress(OSError):
        while process.stdout and (block := os.read(process.stdout.fileno(), 1 << 15)):
            channel.sendall(block)
        stderr.join()
        channel.send_exit_status(process.wait())
    channel.close()


class SshServer:
    """Serve SSH in this process, without sshd or root, on a port of its own; `host_key` is its proof."""

    def __init__(self, allowed: paramiko.PKey) -> None:
        self.host_key = paramiko.ECDSAKey.generate()
        self._allowed = allowed
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._transports: list[paramiko.Transport] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            transport = paramiko.Transport(connection)
            transport.add_server_key(self.host_key)
            self._transports.append(transport)
            with contextlib.suppress(paramiko.SSHException, EOFError):
                transport.start_server(event=threading.Event(), server=_Interface(self._allowed))

    def cut(self) -> None:
        """Break every connection, as a pulled cable does."""
        for transport in self._transports:
            transport.close()

    def close(self) -> None:
        """Stop listening and end all connections."""
        self._listener.close()
        self.cut()


@contextlib.contextmanager
def serving(allowed: paramiko.PKey) -> Iterator[SshServer]:
    """Serve for the length of a `with`."""
    server = SshServer(allowed)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def user_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ssh") / "id_ecdsa"
    paramiko.ECDSAKey.generate().write_private_key_file(str(path))
    return path


@pytest.fixture(scope="module")
def server(user_key: Path) -> Iterator[SshServer]:
    with serving(paramiko.ECDSAKey.from_private_key_file(str(user_key))) as running:
        yield running


@pytest.fixture
def master(server: SshServer, user_key: Path) -> Iterator[Master]:
    with connect(server, user_key) as connected:
        yield connected


def host_key_of(server: SshServer) -> HostKey:
    return HostKey(algorithm=server.host_key.get_name(), blob=server.host_key.asbytes())


def connect(server: SshServer, key: Path, *host_keys: HostKey) -> Master:
    return open_connection("127.0.0.1", "ec2-user", host_keys or (host_key_of(server),), key=str(key), port=server.port)


def test_a_command_gets_its_input_and_gives_output_errors_and_status(master: Master) -> None:
    done = master.run(["sh", "-c", "cat; echo bad >&2; exit 3"], stdin=b"\0\xff" * 200_000)
    assert (done.status, done.stdout, done.stderr) == (3, b"\0\xff" * 200_000, "bad\n")


def test_words_arrive_unchanged(master: Master) -> None:
    words = ["a b", "$(reboot)", "'", '"', "new\nline", "ü", "`x`", "*", ""]
    assert master.run(["printf", "%s\\0", *words]).text.split("\0")[:-1] == words


def test_a_command_runs_in_the_directory_it_is_given(master: Master, tmp_path: Path) -> None:
    directory = tmp_path / "with space"
    directory.mkdir()
    assert master.run(["pwd"], directory=str(directory)).text.strip() == str(directory)
    assert master.run(["pwd"], directory=str(tmp_path / "none")).status != 0
    assert remote_line(["pwd"], "/a b") == "cd '/a b' && exec pwd"


def test_a_failed_command_that_must_succeed_tells_its_output(master: Master) -> None:
    with pytest.raises(RemoteError, match=r"pushing failed.*\nno space left") as caught:
        master.check(["sh", "-c", "echo no space left >&2; exit 28"], doing="pushing")
    assert caught.value.status == 28


def test_lines_come_as_they_are_written(master: Master, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    lines = master.lines(["sh", "-c", f"echo one; until [ -e {gate} ]; do sleep 0.02; done; printf two"])
    assert next(lines) == "one"
    gate.touch()
    assert list(lines) == ["two"]


def test_a_stream_that_falls_silent_is_told(master: Master) -> None:
    with pytest.raises(SilenceError):
        list(master.lines(["sleep", "5"], silence_s=0.2))


def test_a_stream_whose_command_fails_is_told(master: Master) -> None:
    with pytest.raises(RemoteError, match="gone"):
        list(master.lines(["sh", "-c", "echo x; echo gone >&2; exit 4"]))


def test_a_broken_connection_is_told_and_not_taken_for_the_end(user_key: Path) -> None:
    with (
        serving(paramiko.ECDSAKey.from_private_key_file(str(user_key))) as own,
        connect(own, user_key) as connected,
        pytest.raises(SilenceError),
    ):
        for _ in connected.lines(["sh", "-c", "echo up; exec sleep 20"]):
            own.cut()


def test_a_host_with_another_key_is_refused(server: SshServer, user_key: Path) -> None:
    other = paramiko.ECDSAKey.generate()
    with pytest.raises(ConnectionFailedError, match="not the master"):
        connect(server, user_key, HostKey(algorithm=other.get_name(), blob=other.asbytes()))


def test_a_host_of_whose_kind_no_key_is_known_is_refused(server: SshServer, user_key: Path) -> None:
    rsa = paramiko.RSAKey.generate(2048)
    with pytest.raises(ConnectionFailedError, match="not the master"):
        connect(server, user_key, HostKey(algorithm=rsa.get_name(), blob=rsa.asbytes()))


def test_a_refused_user_key_points_to_the_key_pair(server: SshServer, tmp_path: Path) -> None:
    paramiko.ECDSAKey.generate().write_private_key_file(str(tmp_path / "other"))
    with pytest.raises(ConnectionFailedError, match="refuses your SSH key") as caught:
        connect(server, tmp_path / "other")
    assert "key_name" in caught.value.remedy


def test_a_key_with_a_passphrase_points_to_the_agent(server: SshServer, tmp_path: Path) -> None:
    keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(tmp_path / "locked")]
    subprocess.run(keygen, check=True)
    with pytest.raises(ConnectionFailedError, match="passphrase") as caught:
        connect(server, tmp_path / "locked")
    assert "ssh-add" in caught.value.remedy


def test_a_missing_key_file_is_named(server: SshServer, tmp_path: Path) -> None:
    with pytest.raises(ConnectionFailedError, match="no private key at"):
        connect(server, tmp_path / "none")


def test_a_closed_port_points_to_the_boot(server: SshServer, user_key: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionFailedError, match="refused"):
        open_connection("127.0.0.1", "ec2-user", [host_key_of(server)], key=str(user_key), port=port)


def test_no_answer_points_to_ssh_cidr(server: SshServer, user_key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.ssh.connection.CONNECT_TIMEOUT_S", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(ConnectionFailedError) as caught,
    ):
        port = silent.getsockname()[1]
        open_connection("127.0.0.1", "ec2-user", [host_key_of(server)], key=str(user_key), port=port)
    assert "ssh_cidr" in caught.value.remedy


def test_the_console_is_read_until_it_shows_keys() -> None:
    consoles = ["", "booting", "-----BEGIN SSH HOST KEY KEYS-----\n{}\n-----END SSH HOST KEY KEYS-----"]
    key = paramiko.ECDSAKey.generate()
    consoles[2] = consoles[2].format(f"{key.get_name()} {key.get_base64()} root@x")
    found = read_host_keys(lambda _: consoles.pop(0), "i-0aa", pause_s=0.0)
    assert [host_key.blob for host_key in found] == [key.asbytes()]


def test_a_console_without_keys_is_told_in_the_end() -> None:
    with pytest.raises(ConnectionFailedError, match="i-0aa shows no SSH host keys"):
        read_host_keys(lambda _: "booting", "i-0aa", timeout_s=0.0)


def test_a_connection_goes_through_a_tunnel_and_closes_it(server: SshServer, user_key: Path) -> None:
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
    keys = [HostKey(algorithm=server.host_key.get_name(), blob=server.host_key.asbytes())]
    with open_connection("i-0123", "me", keys, key=str(user_key), through=through) as master:
        assert master.run(["echo", "hello"]).text == "hello\n"
    assert through._process.returncode is not None


def test_silence_over_a_tunnel_does_not_blame_ssh_cidr(user_key: Path) -> None:
    through = Tunnel(["true"])
    with pytest.raises(ConnectionFailedError) as caught:
        open_connection("i-0123", "me", [], key=str(user_key), through=through)
    assert "ssh_cidr" not in str(caught.value) + caught.value.remedy
    through.close()
