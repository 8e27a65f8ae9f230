"""Facts about how the demo starts its cloud."""

from __future__ import annotations

import sys

import pytest

from tools import demo

MOUNT = ["--mount", "/made:/opt/made"]
HERE = sys.version_info[:2]


@pytest.fixture(autouse=True)
def _made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "runtime_mount", lambda: MOUNT)
    monkeypatch.setattr(demo, "PYTHONS", {"debian-12": HERE, "debian-13": (HERE[0], HERE[1] + 2)})


def test_nodes_get_the_environment_of_this_machine_where_their_python_is_the_same() -> None:
    assert demo.start_options("", packages=False) == MOUNT
    assert demo.start_options("debian-12", packages=False) == ["--image", "debian-12", *MOUNT]
    assert demo.start_options("debian-12", packages=True) == ["--image", "debian-12", "--packages", *MOUNT]


def test_nodes_with_another_python_make_their_own_from_this_machines_index() -> None:
    for packages in (False, True):
        assert demo.start_options("debian-13", packages=packages) == ["--image", "debian-13", "--packages"]
