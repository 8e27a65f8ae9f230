"""The shared directory with the behavior of an NFS client: a FUSE mount with caches, slow opens and polled locks.

`bindfs` forwards everything, and the kernel caches like Linux's NFS client (nfs(5), "Data and metadata coherence").
Attributes of files are cached for at least acregmin, 3 s. Names, found or not, are cached as long as their directory's
attributes, at least acdirmin, 30 s. EFS is mounted with these defaults. Content is read again at each open and read
(`direct_io`), so a host that opens a file sees everything that was written before its writer closed it.

Every program of the host also loads a library, `guest/nfs_client.c`, for behavior that FUSE cannot provide.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from localcloud.errors import LocalCloudError
from localcloud.hosts.this_machine_image import GUEST, write

COMMAND: Final = "bindfs"
COMPILER: Final = "cc"
ATTRIBUTES_S: Final = 3
NAMES_S: Final = 30
MOUNT_OPTIONS: Final = f"attr_timeout={ATTRIBUTES_S},entry_timeout={NAMES_S},negative_timeout={NAMES_S},direct_io"
OPEN_S: Final = 0.002
"""Duration of an open. EFS promises "as low as" 1 ms for reads and 2.7 ms for writes (its performance page)."""
LIBRARY: Final = "usr/lib/localcloud/nfs_client.so"


def compile_library(target: Path) -> None:
    """Compile the library that delays opens and polls for locks to the file `target`.

    Raises LocalCloudError with the compiler's output.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    open_ns = f"-DOPEN_NS={round(OPEN_S * 1e9)}L"
    words = [COMPILER, "-shared", "-fPIC", "-O2", open_ns, "-o", str(target), str(GUEST / "nfs_client.c")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise LocalCloudError(
            f"--nfs-client: {COMPILER} cannot compile {GUEST / 'nfs_client.c'}: {done.stderr.strip()}\n"
            "install gcc and libc6-dev, or start without --nfs-client"
        )


def install(layer: Path) -> None:
    """Make every program of the hosts over this layer load the library. Raises like `compile_library`."""
    compile_library(layer / LIBRARY)
    write(layer / "etc/ld.so.preload", f"/{LIBRARY}\n")
