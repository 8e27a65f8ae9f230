"""A directory as one node's NFS client shows it, with what it has cached of names and attributes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localcloud.hosts.nfs_client import COMMAND, MOUNT_OPTIONS


@contextmanager
def nfs_client(server: Path, directory: Path) -> Iterator[Path]:
    """Mount `server` at the new `directory` as the embedded cloud's hosts may do; other nodes write to `server`."""
    directory.mkdir()
    mount = [COMMAND, "--enable-lock-forwarding", "--multithreaded", "-o", MOUNT_OPTIONS]
    subprocess.run([*mount, str(server), str(directory)], check=True, timeout=60)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True, timeout=60)
