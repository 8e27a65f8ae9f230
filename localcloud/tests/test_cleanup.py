"""Cleanup removes the processes and directories of one cloud, and keeps other clouds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from localcloud.cleanup import MARKER, namespace_inodes, processes_in, remove, terminate
from localcloud.cloud_paths import Layout
from localcloud.lifecycle import acquire, make_directory


def layout(root: Path, name: str = "lc0") -> Layout:
    return Layout(name=name, run_root=root / "run", data_root=root / "data")


def process(proc: Path, pid: int, environ: bytes) -> int:
    """Add a process to a fake /proc; return the inode number of its network namespace."""
    entry = proc / str(pid)
    (entry / "ns").mkdir(parents=True)
    (entry / "ns/net").touch()
    (entry / "environ").write_bytes(environ)
    return (entry / "ns/net").stat().st_ino


def test_cloud_starts_while_another_removes_shared_directory(tmp_path: Path) -> None:
    mine, over = layout(tmp_path), threading.Event()

    def others_end() -> None:
        while not over.is_set():
            remove(layout(tmp_path, "lc1"))

    other = threading.Thread(target=others_end)
    other.start()
    try:
        for _ in range(300):
            os.close(acquire(mine))
            for directory in (mine.run, mine.data):
                make_directory(directory)
                assert directory.is_dir()
            remove(mine)
    finally:
        over.set()
        other.join()


def test_directories_are_removed_and_other_clouds_are_kept(tmp_path: Path) -> None:
    mine, other = layout(tmp_path), layout(tmp_path, "lc1")
    for one in (mine, other):
        one.run.mkdir(parents=True)
        one.efs.mkdir(parents=True)
    remove(mine)
    remove(mine)
    assert not mine.run.exists()
    assert not mine.data.exists()
    assert other.efs.exists()
    remove(other)
    assert list(tmp_path.iterdir()) == []


def test_processes_are_found_by_namespace_and_cloud_name(tmp_path: Path) -> None:
    marker = f"{MARKER}=lc0".encode()
    numbers = {pid: process(tmp_path, pid, environ) for pid, environ in [(11, marker), (12, b"A=1"), (13, marker)]}
    (tmp_path / "self").mkdir()
    assert processes_in("lc0", frozenset({numbers[11], numbers[12]}), tmp_path) == [11]
    assert processes_in("lc1", frozenset(numbers.values()), tmp_path) == []


def test_namespace_inodes_come_from_state_file(tmp_path: Path) -> None:
    mine = layout(tmp_path)
    assert namespace_inodes(mine) == frozenset()
    mine.run.mkdir(parents=True)
    mine.state.write_text(json.dumps({"namespaces": {"laptop": {"inode": 7}, "outside": {"inode": 8}}}))
    assert namespace_inodes(mine) == frozenset({7, 8})
    mine.state.write_text("{")
    assert namespace_inodes(mine) == frozenset()


def test_process_gets_sigterm_first() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    terminate([child.pid])
    assert child.wait() < 0
    terminate([child.pid])
    assert os.getpid() > 0
