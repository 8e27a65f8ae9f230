"""The hosts' root volumes, each with the size of its instance's launch template.

A volume is a sparse file with an ext4 file system, mounted through a loop device. The mount is in the daemon's mount
namespace, so the kernel frees the device when the daemon dies. On a machine that cannot mount such files, as in some
containers, a volume is a plain directory, and its size is not enforced.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import os
import shutil
import struct
import threading
from pathlib import Path
from typing import Final

from localcloud.errors import CommandError
from localcloud.network.namespaces import mount_device, run, unmount

_BYTES_PER_INODE: Final = 1 << 16
"""A volume of 8 GiB has 131,072 inodes. With more inodes, new volumes take more time and space."""
# A volume does not survive this machine, so it has no journal, and no write waits for the disk.
_LAYOUT: Final = ("-m", "0", "-i", str(_BYTES_PER_INODE), "-O", "^has_journal,^resize_inode")
_MAKE: Final = ("mke2fs", "-q", "-F", "-t", "ext4", *_LAYOUT, "-E", "lazy_itable_init=1,nodiscard")
_OPTIONS: Final = "barrier=0,noinit_itable"
_PROBE_BYTES: Final = 1 << 20
_LOOP_CONTROL: Final = Path("/dev/loop-control")
# From linux/loop.h.
_LOOP_CTL_GET_FREE: Final = 0x4C82
_LOOP_CONFIGURE: Final = 0x4C0A
_LO_FLAGS_AUTOCLEAR: Final = 4
_MOUNTS: Final = Path("/proc/self/mounts")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Volumes:
    """The volumes of one cloud."""

    directory: Path
    """Directory of the volumes, on a disk."""
    unlimited: str
    """Why the sizes are not enforced, or ""."""
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, compare=False, repr=False)

    def path(self, instance_id: str) -> Path:
        """Return the directory in which an instance's volume is mounted."""
        return self.directory / instance_id

    def make(self, instance_id: str, size_gib: int) -> None:
        """Make and mount an empty volume. Raises OSError or CommandError."""
        self.path(instance_id).mkdir(parents=True)
        if self.unlimited:
            return
        empty = self.directory / f"{size_gib}.empty"
        with self._lock:
            if not empty.exists():
                _make_file(empty, size_gib << 30)
        file = self._file(instance_id)
        _copy_sparse(empty, file)
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
    """Return a cloud's volumes. Mount one to find out whether this machine can enforce their sizes.

    Call it in a separate mount namespace (`leave_mount_namespace`).
    """
    directory.mkdir(parents=True)
    return Volumes(directory=directory, unlimited=_why_unlimited(directory))


def _why_unlimited(directory: Path) -> str:
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
        return f"cannot mount a file: {error}"
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


def _copy_sparse(source: Path, target: Path) -> None:
    """Copy the data of a sparse file. For an empty volume, this takes a tenth of the time of mke2fs."""
    with source.open("rb", buffering=0) as old, target.open("xb", buffering=0) as new:
        size, at = os.fstat(old.fileno()).st_size, 0
        new.truncate(size)
        while at < size:
            try:
                at = os.lseek(old.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # only a hole is left
                    break
                raise
            hole = os.lseek(old.fileno(), at, os.SEEK_HOLE)
            while at < hole:
                at += os.pwrite(new.fileno(), os.pread(old.fileno(), hole - at, at), at)


def _mount(file: Path, at: Path) -> None:
    """Mount a file through a loop device that the kernel frees when it is unmounted.

    These calls take a millisecond. `mount -o loop` takes 20 ms, and waits when it competes for a device.
    """
    with file.open("r+b") as backing, _LOOP_CONTROL.open("rb") as control:
        # struct loop_config: the file, the block size, and a loop_info64 with its flags after 52 bytes.
        config = struct.pack("=II52xI176x64x", backing.fileno(), 0, _LO_FLAGS_AUTOCLEAR)
        while True:
            path = Path(f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}")
            with path.open("r+b", buffering=0) as device:
                try:
                    fcntl.ioctl(device, _LOOP_CONFIGURE, config)
                except OSError as error:
                    if error.errno == errno.EBUSY:  # another process has taken it
                        continue
                    raise
                mount_device(str(path), at, "ext4", _OPTIONS)
                return
