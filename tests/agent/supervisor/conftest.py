"""A shared file system for one test, and the supervisor's command line on it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.supervisor.live_runs import PROJECT, Call, end_all
from tests.factories import AGENT, PAYLOAD


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the login user's home on the master's own disk."""
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    return path


@pytest.fixture
def efs(tmp_path: Path) -> Iterator[Path]:
    """Make a shared file system with this project's agent and payload; at the end, kill the remaining processes."""
    for tree, package in ((AGENT, "agent"), (PAYLOAD, "payload")):
        directory = tmp_path / "payloads" / tree
        directory.mkdir(parents=True)
        (directory / package).symlink_to(PROJECT / package)
    yield tmp_path
    end_all(tmp_path)


@pytest.fixture
def supervisor(efs: Path) -> Call:
    """Return a function that calls the supervisor's command line."""

    def call(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "agent.supervisor.cli", "--root", str(efs / "runs"), *arguments],
            cwd=efs / "payloads" / AGENT,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call
