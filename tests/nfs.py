"""Mount a directory as an NFS client of one node shows it, with cached names and attributes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHES = "attr_timeout=3,entry_timeout=30,negative_timeout=30,direct_io"
"""How long Linux's NFS client keeps attributes and names, as with `localcloud start --nfs-client`."""


@contextmanager
def nfs_client(server: Path, directory: Path) -> Iterator[Path]:
    """Mount `server` at the new `directory` as hosts of the embedded cloud may do; other nodes write to `server`."""
    directory.mkdir()
    mount = ["bindfs", "--enable-lock-forwarding", "--multithreaded", "-o", CACHES]
    subprocess.run([*mount, str(server), str(directory)], check=True, timeout=60)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True, timeout=60)
