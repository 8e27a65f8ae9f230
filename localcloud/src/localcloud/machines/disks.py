"""The disks of machines, created once and kept in the user's cache: roots with a kernel, and directories to show.

mmdebstrap creates a root from Debian's packages, as for hosts in namespaces. mke2fs makes it a disk without a mount.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from localcloud.hosts.debian_image import AWS, AWS_STAND_IN, PACKAGES, Distribution, cloud_config, settings
from localcloud.hosts.debian_root import ImageError, Root, archive_hosts, make_once
from localcloud.hosts.images import Bind
from localcloud.hosts.this_machine_image import write

GUEST: Final = Path(__file__).parent / "guest"
KERNEL: Final = ("linux-image-cloud-amd64", "initramfs-tools", "zstd", "udev", "qemu-guest-agent", "kmod", "e2fsprogs")
# Network packages of Debian's image that hosts in namespaces do not need, and the NFS client, which the image lacks: on
# an emulated machine, apt takes minutes to read its lists.
_NETWORK: Final = ("isc-dhcp-client", "netplan.io", "nfs-common", "systemd-resolved")
_SERVER: Final = ("init", "dbus", "iproute2", "nfs-kernel-server", "procps")
_WANTED: Final = "etc/systemd/system/{}.wants/{}"
_UNITS: Final = {"localcloud-show.service": "sysinit.target", "localcloud-result.service": "cloud-init.target"}
_MANAGER: Final = "etc/systemd/system.conf.d/localcloud.conf"
# On a busy machine, an emulated one needs longer than systemd's default of 90 seconds to find its disks.
_PATIENT: Final = "[Manager]\nDefaultDeviceTimeoutSec=15min\nDefaultTimeoutStartSec=15min\n"
_SLACK: Final = 1.25
"""Ratio of a disk's size to the size of its files. The rest is for the file system."""
_MIB: Final = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """A file of a root that does not come from a package."""

    text: str
    mode: int = 0o644
    link: bool = False
    """Whether it is a symbolic link to `text`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RootDisk:
    """A disk from which machines boot, with its kernel."""

    directory: Path

    @property
    def disk(self) -> Path:
        """Return the disk: ext4, without partitions."""
        return self.directory / "disk"

    @property
    def kernel(self) -> Path:
        """Return the disk's kernel."""
        return self.directory / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """Return the disk's initial RAM disk."""
        return self.directory / "initrd.img"

    @property
    def archive(self) -> frozenset[str]:
        """Return the servers in the root's apt sources."""
        return frozenset((self.directory / "archive").read_text(encoding="utf-8").split())


def node_disk(distribution: Distribution, environment: Mapping[str, str], cache: Path) -> RootDisk:
    """Return the disk of a distribution's nodes, with these variables in every process.

    If the cache does not have the disk, it is created, which takes two minutes. Raises ImageError.
    """
    root = Root(
        name=f"{distribution.name}-machine",
        suite=distribution.suite,
        packages=(*PACKAGES, *_NETWORK, *KERNEL),
        diversions=(AWS,),
    )
    return _root_disk(root, node_files(distribution, environment), cache)


def server_disk(distribution: Distribution, cache: Path) -> RootDisk:
    """Return the disk of a file server with the same release. If the cache does not have it, it is created.

    Raises ImageError.
    """
    root = Root(name=f"{distribution.name}-server", suite=distribution.suite, packages=(*_SERVER, *KERNEL))
    return _root_disk(root, server_files(), cache)


def node_files(distribution: Distribution, environment: Mapping[str, str]) -> dict[str, File]:
    """Return the files, by path in the root, that turn Debian's packages into an image for EC2 in this cloud."""
    variables = sorted(environment.items())
    services = " ".join(f'"{key}={value}"' for key, value in variables)
    files = {
        "etc/fstab": File(text="/dev/vda / ext4 defaults 0 1\n"),
        "etc/environment": File(text="".join(f"{key}={value}\n" for key, value in variables)),
        _MANAGER: File(text=f"{_PATIENT}DefaultEnvironment={services}\n"),
        "etc/cloud/cloud.cfg.d/01_debian_cloud.cfg": File(text=cloud_config(settings(distribution))),
        "etc/resolv.conf": File(text="../run/systemd/resolve/stub-resolv.conf", link=True),
        AWS.strip("/"): File(text=AWS_STAND_IN, mode=0o755),
        "usr/lib/localcloud/localcloud-show": File(text=_guest("localcloud-show"), mode=0o755),
    }
    for unit, target in _UNITS.items():
        files[f"etc/systemd/system/{unit}"] = File(text=_guest(unit))
        files[_WANTED.format(target, unit)] = File(text=f"../{unit}", link=True)
    return files


def server_files() -> dict[str, File]:
    """Return the files, by path in the root, that turn Debian's packages into a file server."""
    networkd = "systemd-networkd.service"
    return {
        "etc/hostname": File(text="file-server\n"),
        _MANAGER: File(text=_PATIENT),
        "etc/fstab": File(text=_guest("server.fstab")),
        "etc/exports": File(text=_guest("server.exports")),
        "etc/nfs.conf.d/localcloud.conf": File(text=_guest("server.nfs.conf")),
        "etc/systemd/network/10-server.network": File(text=_guest("10-server.network")),
        _WANTED.format("multi-user.target", networkd): File(text=f"/lib/systemd/system/{networkd}", link=True),
    }


def shown_disk(binds: Sequence[Bind], cache: Path) -> Path | None:
    """Return a disk with copies of the directories of `start --mount`; None without this option. Raises ImageError.

    If the cache has no disk with these directories, or a file has changed, it is created. Earlier disks are kept.
    """
    if not binds:
        return None

    def make(directory: Path) -> None:
        print("creating a disk with the directories of --mount", file=sys.stderr, flush=True)
        tree = directory / "tree"
        tree.mkdir(parents=True)
        (tree / "targets").write_text("".join(f"{bind.target}\n" for bind in binds), encoding="utf-8")
        for number, bind in enumerate(binds):
            copy = ["cp", "--archive", "--reflink=auto", str(bind.source), str(tree / str(number))]
            _run(copy, "the disk for --mount")
        _fill(directory / "disk", tree)
        shutil.rmtree(tree)

    return make_once(cache / f"shown-{_fingerprint(binds)}", make) / "disk"


def _fingerprint(binds: Sequence[Bind]) -> str:
    """Return a hash of the paths, sizes and modification times of all files in the directories."""
    found = hashlib.sha256()
    for bind in binds:
        found.update(f"{bind.source}\0{bind.target}\0".encode())
        for path in _walk(bind.source):
            status = path.lstat()
            found.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return found.hexdigest()[:12]


def _walk(directory: Path) -> Iterator[Path]:
    """Yield all files below a directory in a stable order."""
    for parent, directories, names in os.walk(directory):
        directories.sort()
        yield from (Path(parent, name) for name in sorted(names))


def _root_disk(root: Root, files: Mapping[str, File], cache: Path) -> RootDisk:
    """Return the disk of a root with additional files. Create it if it is missing. Raises ImageError."""
    made_by = json.dumps([root.command(Path()), {path: dataclasses.astuple(file) for path, file in files.items()}])
    name = f"{root.name}-{hashlib.sha256(made_by.encode()).hexdigest()[:12]}"

    def make(directory: Path) -> None:
        directory.mkdir()
        tree = directory / "tree"
        root.make(tree)
        _install(tree, files)
        for kind in ("vmlinuz", "initrd.img"):
            (found,) = tree.glob(f"boot/{kind}-*")
            shutil.copyfile(found, directory / kind)
        (directory / "archive").write_text("\n".join(sorted(archive_hosts(tree))), encoding="utf-8")
        _fill(directory / "disk", tree)
        shutil.rmtree(tree)

    return RootDisk(directory=make_once(cache / name, make))


def _install(tree: Path, files: Mapping[str, File]) -> None:
    """Write additional files into a root. They replace existing files."""
    for path, file in files.items():
        (tree / path).unlink(missing_ok=True)
        if file.link:
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).symlink_to(file.text)
        else:
            write(tree / path, file.text, mode=file.mode)


def _fill(disk: Path, tree: Path) -> None:
    """Create a disk (ext4) with the files of the directory `tree`. Raises ImageError."""
    used = _run(["du", "--summarize", "--block-size=1M", str(tree)], f"the disk {disk}")
    size_mib = int(int(used.split()[0]) * _SLACK) + 64
    with disk.open("wb") as file:
        file.truncate(size_mib * _MIB)
    _run(["mke2fs", "-q", "-F", "-t", "ext4", "-d", str(tree), str(disk)], f"the disk {disk}")


def _run(command: Sequence[str], what: str) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(f"cannot create {what}: {command[0]}: {done.stderr.strip()[-500:]}")
    return done.stdout


def _guest(name: str) -> str:
    return (GUEST / name).read_text(encoding="utf-8")
