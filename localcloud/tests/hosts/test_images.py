"""Directories of this machine that hosts see."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from localcloud.hosts.images import Bind, MountError, interpreter_binds


def test_mount_is_source_and_target(tmp_path: Path) -> None:
    assert Bind.parse(f"{tmp_path}:/opt/x/") == Bind(source=tmp_path.resolve(), target="/opt/x")


@pytest.mark.parametrize("text", ["", "/tmp", "/tmp:opt", ":/opt", "/tmp:/opt/../etc"])
def test_ill_formed_mounts_are_rejected(text: str) -> None:
    with pytest.raises(MountError, match="must be SRC:DST"):
        Bind.parse(text)


@pytest.mark.parametrize("target", ["/", "//", "/proc/here", "/dev", "/run/x"])
def test_hosts_own_directories_are_not_mounted_over(target: str) -> None:
    with pytest.raises(MountError, match="DST must not be / or in /proc"):
        Bind.parse(f"/tmp:{target}")


def test_missing_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(MountError, match="nowhere is not a directory"):
        Bind.parse(f"{tmp_path}/nowhere:/opt")


def test_python_under_usr_needs_no_bind() -> None:
    assert interpreter_binds("/usr") == ()


def test_python_elsewhere_is_shown_at_its_own_path(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    assert interpreter_binds(str(tmp_path)) == (Bind(source=root, target=str(root)),)
    assert sys.base_prefix
