"""Nodes without machines, in a directory of the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stacks.boot.nodelab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)
