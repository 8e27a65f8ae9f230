"""An SSH server in this process, for tests of connections."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_FAILED_RESOURCE_SHORTAGE, OPEN_SUCCEEDED

from cluster.ssh import user_keys
from cluster.ssh.connect import open_connection
from cluster.ssh.host_keys import HostKey
from cluster.ssh.master import Master
from cluster.ssh.user_settings import UserSettings

_ONE_AT_A_TIME = threading.Lock()
"""paramiko waits for the answer to one global request at a time."""


class _Interface(paramiko.ServerInterface):
    def __init__(self, allowed: paramiko.PKey, *, opens_sessions: bool) -> None:
        self._allowed, self._opens_sessions = allowed, opens_sessions

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED if self._opens_sessions else OPEN_FAILED_RESOURCE_SHORTAGE

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return AUTH_SUCCESSFUL if key == self._allowed else AUTH_FAILED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=_execute, args=(channel, command.decode()), daemon=True).start()
        return True


def _execute(channel: paramiko.Channel, command: str) -> None:
    # The server confirms the command only after this thread has started, and a command may close its channel before
    # that. The confirming thread reads the answer to a request only after the confirmation.
    with _ONE_AT_A_TIME:
        channel.get_transport().global_request("accepted@tests", wait=True)
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
    with contextlib.suppress(OSError, EOFError):  # EOFError: the connection was cut
        while process.stdout and (block := os.read(process.stdout.fileno(), 1 << 15)):
            channel.sendall(block)
        stderr.join()
        channel.send_exit_status(process.wait())
        channel.close()


class SshServer:
    """Serve SSH in this process, without sshd or root, on a free port; `host_key` identifies the server."""

    def __init__(self, allowed: paramiko.PKey, *, opens_sessions: bool = True) -> None:
        self._opens_sessions = opens_sessions
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
            interface = _Interface(self._allowed, opens_sessions=self._opens_sessions)
            with contextlib.suppress(paramiko.SSHException, EOFError):
                transport.start_server(event=threading.Event(), server=interface)

    def cut(self) -> None:
        """Break every connection, like a pulled cable."""
        for transport in self._transports:
            transport.close()

    def close(self) -> None:
        """Stop listening and close all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # otherwise accept keeps waiting
        self._listener.close()
        self.cut()


@contextlib.contextmanager
def serving(allowed: paramiko.PKey, *, opens_sessions: bool = True) -> Iterator[SshServer]:
    """Serve for the duration of a `with` block."""
    server = SshServer(allowed, opens_sessions=opens_sessions)
    try:
        yield server
    finally:
        server.close()


def host_key_of(server: SshServer) -> HostKey:
    return HostKey(algorithm=server.host_key.get_name(), blob=server.host_key.asbytes())


def connect_to(server: SshServer, key: Path, *host_keys: HostKey) -> Master:
    keys = user_keys.find(UserSettings(), key.parent, str(key))
    return open_connection("127.0.0.1", "ec2-user", host_keys or (host_key_of(server),), keys, port=server.port)
