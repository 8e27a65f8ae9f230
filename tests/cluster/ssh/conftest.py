"""A key of the user, an SSH server that accepts it, and a connection to the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.ssh.master import Master
from tests.cluster.ssh.ssh_server import SshServer, connect_to, make_key, serving


@pytest.fixture(scope="module")
def user_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("ssh") / "id_ecdsa", "ecdsa")


@pytest.fixture(scope="module")
def server(user_key: Path) -> Iterator[SshServer]:
    with serving(user_key) as running:
        yield running


@pytest.fixture
def master(server: SshServer, user_key: Path) -> Iterator[Master]:
    with connect_to(server, user_key) as connected:
        yield connected
