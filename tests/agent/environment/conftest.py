"""The environment with pip and uv that `make setup` created, for all tests in this directory."""

from __future__ import annotations

import os

import pytest

from agent.environment import virtual_environment
from agent.environment.horovod_build import default_cache
from agent.environment.virtual_environment import Installer


@pytest.fixture
def installer(monkeypatch: pytest.MonkeyPatch) -> Installer:
    """Create environments with this machine's installer, as on a node with an image that includes one."""
    found = Installer(root=default_cache(os.environ) / "runtime")
    if not found.complete:
        pytest.skip("the environment with pip and uv is missing: run `make setup`")
    monkeypatch.setattr(virtual_environment, "DEFAULT_ROOT", found.root)
    return found
