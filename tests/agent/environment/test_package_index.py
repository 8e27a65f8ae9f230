"""Package indexes: an unreachable index is reported within seconds, and credentials stay in a private file."""

from __future__ import annotations

import netrc
import socket
from pathlib import Path

import pytest

from agent.environment import package_index
from agent.environment.install_step import RuntimeSetupError
from agent.environment.package_index import ALLOW_INDEX, REMEDY, describe_unreachable, index_problem, write_netrc
from agent.environment.virtual_environment import Installer

UNKNOWN = "index.invalid"
"""A name that never resolves (RFC 6761)."""


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip see only the settings of the test."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setattr(package_index, "_PAUSE_S", 0.0)


@pytest.fixture
def python(installer: Installer) -> Path:
    """Return a Python with pip."""
    return installer.python


def test_listening_server_is_sufficient() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"http://127.0.0.1:{server.getsockname()[1]}/simple"
        assert describe_unreachable([f"https://{UNKNOWN}/packages", there]) == ""
    assert describe_unreachable(["file:///srv/simple"]) == ""


def test_unreachable_servers_are_reported_with_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    said = describe_unreachable([f"https://{UNKNOWN}/packages", f"http://127.0.0.1:{port}/own"], tries=1)
    assert f"{UNKNOWN} cannot be reached (" in said
    assert "127.0.0.1 cannot be reached (Connection refused)" in said


def test_index_comes_from_pip(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"https://{UNKNOWN}/packages")
    said = index_problem(python)
    assert said.startswith(f"This node cannot use a package index: {UNKNOWN} cannot be reached (")
    assert said.endswith(REMEDY)
    monkeypatch.setenv("no_proxy", "localhost")
    assert UNKNOWN in index_problem(python), "that variable names no proxy"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert index_problem(python).endswith(f"pip's configuration sets no-index. {ALLOW_INDEX}")


def test_proxy_is_left_to_pip(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"https://{UNKNOWN}/packages")
    monkeypatch.setenv("PIP_PROXY", "http://proxy.example:3128")
    assert index_problem(python) == ""
    monkeypatch.delenv("PIP_PROXY")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    assert index_problem(python) == ""


def test_failed_download_names_the_proxy_without_its_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"https://{UNKNOWN}/packages")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("https_proxy", "http://user:s@cret@127.0.0.1:9")
    message = r"pip uses the proxy http://\*\*\*\*@127\.0\.0\.1:9\. .*NO_PROXY"
    with pytest.raises(RuntimeSetupError, match=message) as failed:
        Installer(root=tmp_path, lock="toy==1.0 --hash=sha256:aa\n").ensure()
    assert "cret" not in str(failed.value)


def test_python_reads_credentials_of_each_host(tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.write_text("machine three login ann password plain\nmachine one login old password old")
    found = write_netrc({"one": ("a@b", 'p"w\\ #x'), "two": ("token", "")}, {"NETRC": str(before)}, tmp_path)
    file = Path(found["NETRC"])
    assert netrc.netrc(str(file)).hosts == {
        "three": ("ann", "", "plain"), "one": ("a@b", "", 'p"w\\ #x'), "two": ("token", "", "")
    }  # fmt: skip
    assert file.stat().st_mode & 0o777 == 0o600
