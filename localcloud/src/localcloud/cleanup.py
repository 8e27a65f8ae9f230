"""Removal of everything that a cloud leaves behind, after a regular stop or a crash.

The kernel does most of it: it removes namespaces, links, rules, mounts and hosts when the daemon exits. Processes in
the laptop's namespace and files remain.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from localcloud.cloud_paths import Layout
from localcloud.hosts.cpu_limit import remove_groups

MARKER: Final = "LOCALCLOUD_NAME"
"""Environment variable with the cloud's name, in all processes that were started on the laptop."""
_TIMEOUT_S: Final = 5.0


def remove(layout: Layout) -> None:
    """Terminate the laptop's processes, and remove the cloud's directories and control groups. Safe to repeat.

    Call it with the cloud's lock, after the daemon's exit.
    """
    terminate(processes_in(layout.name, namespace_inodes(layout)))
    for directory in (layout.run, layout.data):
        if directory.exists():
            shutil.rmtree(directory)
    remove_groups(layout.name)
    for root in (layout.run_root, layout.data_root):
        with contextlib.suppress(OSError):  # another cloud's files are there
            root.rmdir()


def namespace_inodes(layout: Layout) -> frozenset[int]:
    """Return the inode numbers of the laptop's and the internet's network namespaces, from the daemon's state file.

    If the file is missing or incomplete, return an empty set.
    """
    try:
        document = json.loads(layout.state.read_text(encoding="utf-8"))
        return frozenset(int(space["inode"]) for space in document["namespaces"].values())
    except (FileNotFoundError, json.JSONDecodeError, KeyError):
        return frozenset()


def processes_in(name: str, inodes: frozenset[int], proc: Path = Path("/proc")) -> list[int]:
    """Return the pids of the processes that are in these network namespaces and were started for the cloud `name`.

    Both conditions are necessary, because the kernel reuses inode numbers of deleted namespaces. This process and its
    ancestors are omitted.
    """
    marker = f"{MARKER}={name}".encode()
    spared = {os.getpid(), *_ancestors(os.getpid(), proc)}
    found = []
    for entry in proc.iterdir():
        if not entry.name.isdigit() or int(entry.name) in spared:
            continue
        with contextlib.suppress(OSError):  # it exited meanwhile
            inside = (entry / "ns/net").stat().st_ino in inodes
            if inside and marker in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def terminate(pids: Iterable[int]) -> None:
    """Send SIGTERM to processes, and wait for their exit. Kill those that have not exited after 5 s.

    Returns after 5 more seconds, even if some have still not exited.
    """
    left = list(pids)
    for number, timeout_s in ((signal.SIGTERM, _TIMEOUT_S), (signal.SIGKILL, _TIMEOUT_S)):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + timeout_s
        while left and time.monotonic() < deadline:
            left = [pid for pid in left if _is_alive(pid)]
            if left:
                time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _ancestors(pid: int, proc: Path) -> list[int]:
    found = []
    while pid > 1:
        try:
            pid = int((proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            break
        found.append(pid)
    return found
