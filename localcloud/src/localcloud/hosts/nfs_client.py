"""How an NFS client shows the shared directory to a host: a FUSE mount with its caches, slow opens and polled locks.

`bindfs` passes everything on, and the kernel keeps what it learned, as Linux's NFS client does (nfs(5), "Data and
metadata coherence"): attributes of files for at least acregmin, 3 s; names that were found or not found as long as the
attributes of their directory, at least acdirmin, 30 s. EFS is mounted with these defaults. Content is read anew at each
open and read (`direct_io`), so that what was written and closed elsewhere is seen by who opens the file afterwards.

What FUSE cannot do, a library does that every program of the host loads: `guest/nfs_client.c`, which says what.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from localcloud.errors import LocalCloudError
from localcloud.hosts.machine_image import GUEST, write

COMMAND: Final = "bindfs"
COMPILER: Final = "cc"
ATTRIBUTES_S: Final = 3
NAMES_S: Final = 30
MOUNT_OPTIONS: Final = f"attr_timeout={ATTRIBUTES_S},entry_timeout={NAMES_S},negative_timeout={NAMES_S},direct_io"
OPEN_S: Final = 0.002
"""How long an open takes. EFS promises "as low as" 1 ms for reads and 2.7 ms for writes (its performance page)."""
LIBRARY: Final = "usr/lib/localcloud/nfs_client.so"


def compile_library(target: Path) -> None:
    """Compile what slows opens and polls for locks. Raises LocalCloudError with the compiler's words."""
    target.parent.mkdir(parents=True, exist_ok=True)
    open_ns = f"-DOPEN_NS={round(OPEN_S * 1e9)}L"
    words = [COMPILER, "-shared", "-fPIC", "-O2", open_ns, "-o", str(target), str(GUEST / "nfs_client.c")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise LocalCloudError(f"--nfs-client: {COMPILER} failed: {done.stderr.strip()}")


def install(layer: Path) -> None:
    """Have every program of the hosts over this layer load the library. Raises LocalCloudError as `compile_library`."""
    compile_library(layer / LIBRARY)
    write(layer / "etc/ld.so.preload", f"/{LIBRARY}\n")
