"""The volumes of hosts, and machines that cannot enforce their sizes."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from localcloud.hosts import volumes
from localcloud.hosts.volumes import Volumes

DEVTMPFS = "devtmpfs /dev devtmpfs rw 0 0\n"


def test_volume_is_a_sparse_copy_of_an_empty_one_of_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted: list[tuple[Path, Path]] = []
    monkeypatch.setattr(volumes, "_mount", lambda file, at: mounted.append((file, at)))
    made = Volumes(directory=tmp_path / "volumes", why_unlimited="")
    for name in ("i-1", "i-2"):
        made.make(name, 100)
    assert [(file.name, at.name) for file, at in mounted] == [("i-1.ext4", "i-1"), ("i-2.ext4", "i-2")]
    for file, _ in mounted:
        assert file.stat().st_size == 100 << 30
        assert file.stat().st_blocks * 512 < 4 << 20
        checked = subprocess.run(["e2fsck", "-fn", file], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr
    for name in ("i-1", "i-1", "i-2"):
        made.remove(name)
    assert [path.name for path in made.directory.iterdir()] == ["100.empty"]


def test_volume_without_a_size_is_a_directory(tmp_path: Path) -> None:
    made = Volumes(directory=tmp_path, why_unlimited="no loop devices")
    made.make("i-1", 100)
    (made.path("i-1") / "file").write_text("kept")
    made.remove("i-1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("dev", "fails", "why"),
    [
        (DEVTMPFS, False, ""),
        ("tmpfs /dev tmpfs rw 0 0\n", False, "/dev is not devtmpfs, so it would not show new loop devices"),
        (DEVTMPFS, True, "cannot mount a file: Operation not permitted"),
    ],
)
def test_sizes_are_enforced_only_if_volumes_can_be_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dev: str, fails: bool, why: str
) -> None:
    def mount(file: Path, at: Path) -> None:
        assert file.is_file() and at.is_dir()
        if fails:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(volumes, "_mount", mount)
    monkeypatch.setattr(volumes, "unmount", lambda at: None)
    monkeypatch.setattr(volumes, "_MOUNTS", tmp_path / "mounts")
    (tmp_path / "mounts").write_text(dev)
    found = volumes.open_volumes(tmp_path / "volumes")
    assert found.why_unlimited == why
    assert list(found.directory.iterdir()) == []
