"""A separate home on the master's own disk, for the master's record of accepted specs, and a live run."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.runs import liveness
from agent.runs.node_claims import Runs
from agent.runs.run_directory import RunDirectory
from tests.factories import make_state


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the login user's home."""
    path = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(path))
    return path


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """Return the directory of a live run."""
    found = Runs(root=tmp_path)["one"]
    found.path.mkdir()
    liveness.hold("one")
    found.write_state(make_state())
    return found
