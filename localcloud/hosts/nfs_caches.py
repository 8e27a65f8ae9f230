"""The caches of an NFS client, which a host may have between itself and the shared directory: a FUSE mount of its own.

`bindfs` passes everything on, and the kernel keeps what it learned, as Linux's NFS client does (nfs(5), "Data and
metadata coherence"): attributes of files for at least acregmin, 3 s; names that were found or not found as long as the
attributes of their directory, at least acdirmin, 30 s. EFS is mounted with these defaults. Content is read anew at each
open and read (`direct_io`), so that what was written and closed elsewhere is seen by who opens the file afterwards.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

COMMAND: Final = "bindfs"
PACKAGE: Final = "bindfs"
"""The package of Debian and Ubuntu."""
DEVICE: Final = Path("/dev/fuse")
ATTRIBUTES_S: Final = 3
NAMES_S: Final = 30
MOUNT_OPTIONS: Final = f"attr_timeout={ATTRIBUTES_S},entry_timeout={NAMES_S},negative_timeout={NAMES_S},direct_io"


def missing(found: str | None, device: Path = DEVICE) -> list[str]:
    """Return one line for each thing that the caches need and this machine lacks; `found` is where the command is."""
    lines = []
    if found is None:
        lines.append(f"--nfs-caches: command {COMMAND} not found; on Debian or Ubuntu: apt-get install {PACKAGE}")
    if not device.is_char_device():
        lines.append(f"--nfs-caches: there is no {device}; load FUSE with: modprobe fuse")
    return lines
