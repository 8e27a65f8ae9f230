"""The hosts' root volumes, each with the size of its instance's launch template.

A volume is a sparse file with an ext4 file system, mounted through a loop device. The mount is in the daemon's mount
namespace, so the kernel frees the device when the daemon dies. On a machine that cannot mount such files, as in some
containers, a volume is a plain directory, and its size is not enforced.
"""

from __future__ import annotations

import dataclasses
import shutil
import threading
from pathlib import Path
from typing import Final

from localcloud.errors import CommandError, error_text
from localcloud.network.namespaces import run, unmount

_BYTES_PER_INODE: Final = 1 << 16
"""A volume of 8 GiB has 131,072 inodes. With more inodes, new volumes take more time and space."""
# A volume does not survive this machine, so it has no journal, and no write waits for the disk.
_LAYOUT: Final = ("-m", "0", "-i", str(_BYTES_PER_INODE), "-O", "^has_journal,^resize_inode")
_MAKE: Final = ("mke2fs", "-q", "-F", "-t", "ext4", *_LAYOUT, "-E", "lazy_itable_init=1,nodiscard")
_OPTIONS: Final = "barrier=0,noinit_itable"
_PROBE_BYTES: Final = 1 << 20
_MOUNTS: Final = Path("/proc/self/mounts")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Volumes:
    """The volumes of one cloud."""

    directory: Path
    """Directory of the volumes, on a disk."""
    why_unlimited: str
    """Why the sizes are not enforced; "" if they are."""
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, compare=False, repr=False)

    def path(self, instance_id: str) -> Path:
        """Return the directory at which `make` mounts an instance's volume."""
        return self.directory / instance_id

    def make(self, instance_id: str, size_gib: int) -> None:
        """Make and mount an empty volume. If sizes are not enforced, only create its directory.

        Raises OSError or CommandError.
        """
        self.path(instance_id).mkdir(parents=True)
        if self.why_unlimited:
            return
        empty = self.directory / f"{size_gib}.empty"
        with self._lock:
            if not empty.exists():
                _make_file(empty, size_gib << 30)
        file = self._file(instance_id)
        run(["cp", "--sparse=always", str(empty), str(file)])  # takes a tenth of the time of mke2fs
        _mount(file, self.path(instance_id))

    def remove(self, instance_id: str) -> None:
        """Remove a volume, also one that `make` has not finished. Call it after the host's exit."""
        path = self.path(instance_id)
        if path.is_mount():
            unmount(path)
        self._file(instance_id).unlink(missing_ok=True)
        if path.exists():
            shutil.rmtree(path)

    def _file(self, instance_id: str) -> Path:
        return self.directory / f"{instance_id}.ext4"


def open_volumes(directory: Path) -> Volumes:
    """Create the directory of a cloud's volumes and return the volumes. Each host's volume is made by `make`.

    A volume is mounted as a test whether this machine can enforce sizes, so call this in a separate mount namespace
    (`leave_mount_namespace`).
    """
    directory.mkdir(parents=True)
    return Volumes(directory=directory, why_unlimited=_probe(directory))


def _probe(directory: Path) -> str:
    """Return why this machine cannot mount files as volumes, or "" if it can. Mounts a file as a test."""
    mounts = [line.split() for line in _MOUNTS.read_text(encoding="utf-8").splitlines()]
    if not any(words[1:3] == ["/dev", "devtmpfs"] for words in mounts):
        return "/dev is not devtmpfs, so it would not show new loop devices"
    file, at = directory / "probe", directory / "probe.mounted"
    at.mkdir()
    try:
        _make_file(file, _PROBE_BYTES)
        _mount(file, at)
        unmount(at)
    except (OSError, CommandError) as error:
        return f"cannot mount a file: {error_text(error)}"
    finally:
        at.rmdir()
        file.unlink(missing_ok=True)
    return ""


def _make_file(path: Path, size: int) -> None:
    """Make a sparse file of `size` bytes with an empty file system."""
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        file.truncate(size)
    run([*_MAKE, str(new)])
    new.rename(path)


def _mount(file: Path, at: Path) -> None:
    """Mount a file through a loop device that the kernel frees when it is unmounted."""
    run(["mount", "-n", "-t", "ext4", "-o", f"loop,noatime,{_OPTIONS}", str(file), str(at)])
