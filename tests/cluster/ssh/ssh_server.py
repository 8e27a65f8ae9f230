"""OpenSSH's server on this machine, for tests of connections."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from cluster.ssh import user_keys
from cluster.ssh.connect import open_connection
from cluster.ssh.host_keys import HostKey
from cluster.ssh.master import Master
from cluster.ssh.user_settings import UserSettings
from tests.waiting import eventually

SSHD: Final = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
_SETTINGS: Final = """
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
MaxAuthTries 6
AllowTcpForwarding yes
PasswordAuthentication no
KbdInteractiveAuthentication no
"""


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "", *options: str) -> Path:
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", path.name, "-f", str(path), *options]
    subprocess.run(command, check=True)
    return path


class SshServer:
    """Serve SSH for this process's user on a free port of loopback. `authorized` is the file of accepted keys."""

    def __init__(self, folder: Path, *settings: str) -> None:
        """Start the server with its files in an existing folder. `settings` are more lines of its configuration."""
        if not SSHD:
            pytest.skip("needs OpenSSH's server")
        self.authorized = folder / "authorized"
        self.host_key = HostKey.parse(Path(f"{make_key(folder / 'host', 'ecdsa')}.pub").read_text()) or pytest.fail()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        own = f"ListenAddress 127.0.0.1\nPort {self.port}\nHostKey {folder}/host\nAuthorizedKeysFile {self.authorized}"
        (folder / "sshd_config").write_text("\n".join([own, _SETTINGS, *settings, ""]))
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        with (folder / "log").open("w") as log:
            self._process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
        eventually(self._listens)

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def cut(self) -> None:
        """Break every connection, like a pulled cable."""
        pid = self._process.pid
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)

    def close(self) -> None:
        """Stop listening and close all connections."""
        if self._process.poll() is None:
            self.cut()
            self._process.terminate()
            self._process.wait()


@contextlib.contextmanager
def serving(allowed: Path, *settings: str) -> Iterator[SshServer]:
    """Serve for the duration of a `with` block. `allowed` is the private key file that the server accepts."""
    with tempfile.TemporaryDirectory() as folder:
        server = SshServer(Path(folder), *settings)
        server.authorized.write_text(Path(f"{allowed}.pub").read_text())
        try:
            yield server
        finally:
            server.close()


def connect_to(server: SshServer, key: Path, *host_keys: HostKey) -> Master:
    keys = user_keys.find(UserSettings(), key.parent, str(key))
    return open_connection("127.0.0.1", getpass.getuser(), host_keys or (server.host_key,), keys, port=server.port)
