from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from chaos.stage import Stage, done
from localcloud.chaos.attempt import NoTargetError

ROOT = Path(__file__).resolve().parents[1]


def test_exactly_one_bit_of_newest_file_is_flipped(tmp_path: Path) -> None:
    for number, name in enumerate(("old", "new")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "arrays").write_bytes(bytes(100))
        os.utime(tmp_path / name / "arrays", (number, number))
    (tmp_path / "new/empty").touch()
    (tmp_path / "new/link").symlink_to("arrays")
    assert done(Stage(tmp_path), "flip-bit", 0.505, flip="*/*") == "flipped bit 404 of new/arrays"
    assert (tmp_path / "new/arrays").read_bytes() == bytes(50) + b"\x10" + bytes(49)
    assert (tmp_path / "old/arrays").read_bytes() == bytes(100)


def test_shared_file_system_without_a_limit_is_not_filled(tmp_path: Path) -> None:
    with pytest.raises(NoTargetError, match="start the cloud with --efs-size"):
        done(Stage(tmp_path), "fill-disk")
    assert list(tmp_path.iterdir()) == []


def test_no_file_is_changed_through_a_link(tmp_path: Path) -> None:
    """A symbolic link of a host may point to any file of this machine."""
    root, outside = tmp_path / "efs", tmp_path / "etc"
    for directory in (root, outside):
        directory.mkdir()
    (outside / "file").write_bytes(b"mine")
    (root / "directory").symlink_to(outside)
    (root / "file").symlink_to(outside / "file")
    for pattern in ("file", "*", "directory/*", "*/file", "**/*"):
        with pytest.raises(NoTargetError, match="no file matches --flip"):
            done(Stage(root), "flip-bit", flip=pattern)
    assert (outside / "file").read_bytes() == b"mine"


FILL: Final = """
import os, sys
from pathlib import Path
from chaos.stage import Stage, carried_out
root = Path(sys.argv[1])
(root / "other").write_bytes(bytes(1 << 20))
found = carried_out(Stage(root), "fill-disk")
print(found.what, os.statvfs(root).f_bavail)
found.undo()
print(os.listdir(root))
"""


@pytest.mark.root
def test_limited_file_system_is_full_until_fault_is_undone(tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=4m none "$1" && exec "$2" -c "$3" "$1"'
    words = ["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path), sys.executable, FILL]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "filled the shared file systems with 3 MiB 0\n['other']\n"
