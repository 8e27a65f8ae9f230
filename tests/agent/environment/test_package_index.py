"""Facts about a node without a package index: it is told from one that answers, with the reason, in seconds."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agent.environment import package_index
from agent.environment.package_index import REMEDY, missing, unreachable

UNKNOWN = "index.invalid"
"""A name that no resolver knows (RFC 6761)."""
BASE = Path(getattr(sys, "_base_executable", sys.executable))


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave pip the settings of the test alone."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setattr(package_index, "_PAUSE_S", 0.0)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a Python with pip."""
    place = tmp_path_factory.mktemp("venv")
    subprocess.run([str(BASE), "-m", "venv", str(place)], check=True)
    return place / "bin" / "python"


def test_a_server_that_listens_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"http://127.0.0.1:{server.getsockname()[1]}/simple"
        assert unreachable([f"https://{UNKNOWN}/simple", there]) == ""
    assert unreachable(["file:///srv/simple"]) == ""


def test_each_server_that_cannot_be_reached_is_named_with_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    said = unreachable([f"https://{UNKNOWN}/simple", f"http://127.0.0.1:{port}/simple"], tries=1)
    assert f"{UNKNOWN} cannot be reached (" in said
    assert "127.0.0.1 cannot be reached (Connection refused)" in said


def test_pips_own_index_is_asked_for(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"https://{UNKNOWN}/simple")
    said = missing(python)
    assert said.startswith(f"This node has no package index: {UNKNOWN} cannot be reached (")
    assert said.endswith(REMEDY)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert "pip's configuration says no-index" in missing(python)


def test_behind_a_proxy_pip_itself_finds_out(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"https://{UNKNOWN}/simple")
    monkeypatch.setenv("PIP_PROXY", "http://proxy.example:3128")
    assert missing(python) == ""
    monkeypatch.delenv("PIP_PROXY")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    assert missing(python) == ""


def test_hosts_without_a_proxy_alone_name_none(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"https://{UNKNOWN}/simple")
    monkeypatch.setenv("no_proxy", "localhost")
    assert UNKNOWN in missing(python)


def test_a_python_without_pip_has_nothing_to_say(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    assert missing(program) == ""
