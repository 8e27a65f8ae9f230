"""Network namespaces that are held by file descriptors."""

from __future__ import annotations

from pathlib import Path

import pytest

from localcloud.errors import CommandError
from localcloud.network.namespaces import NetworkNamespace, enter_path

pytestmark = pytest.mark.root


def test_only_the_action_runs_in_namespace() -> None:
    outside = Path("/proc/thread-self/ns/net").stat().st_ino
    space = NetworkNamespace()
    assert space.enter(lambda: Path("/proc/thread-self/ns/net").stat().st_ino) == space.inode != outside
    assert enter_path(space.path, lambda: Path("/proc/thread-self/ns/net").stat().st_ino) == space.inode
    assert Path("/proc/thread-self/ns/net").stat().st_ino == outside
    space.close()


def test_settings_apply_only_to_namespace() -> None:
    path = Path("/proc/sys/net/ipv4/ip_forward")
    outside = path.read_text()
    space = NetworkNamespace({"ipv4/ip_forward": "1"})
    assert space.enter(path.read_text) == "1\n"
    space.set_sysctls({"ipv4/ip_forward": "0"})
    assert space.enter(path.read_text) == "0\n"
    assert path.read_text() == outside
    space.close()


def test_failures_include_their_command() -> None:
    space = NetworkNamespace()
    with pytest.raises(CommandError, match="ip -batch"):
        space.ip(["link set nothing up"])
    with pytest.raises(CommandError, match="syntax error"):
        space.nft("tables turned")
    with pytest.raises(ZeroDivisionError):
        space.enter(lambda: 1 // 0)
    space.close()


def test_closing_removes_namespace() -> None:
    space = NetworkNamespace()
    path = space.path
    assert Path(path).samefile(f"/proc/self/fd/{space.fd}")
    space.close()
    assert not Path(path).exists()
