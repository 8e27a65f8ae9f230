"""A host in namespaces on this machine's kernel: its own volume over a root that it shares with other hosts."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from localcloud.hosts import nfs_client
from localcloud.hosts.cpu_limit import CpuLimit
from localcloud.hosts.host import DOMAIN, FirstProcess, Host, firmware_id, hostname
from localcloud.hosts.images import Image
from localcloud.hosts.this_machine_image import GUEST, LOGIN_USERS
from localcloud.hosts.volumes import Volumes
from localcloud.network.addressing import RESOLVER_ADDRESS, guest_commands
from localcloud.network.router import Router
from localcloud.snapshot import Instance, Snapshot, Subnet


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedDirectory:
    """The directory of the shared file systems, and how hosts see it."""

    path: Path
    caches: bool = False
    """Whether hosts see it through the caches of an NFS client."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GuestFile:
    """A file of a host, written before it boots."""

    path: str
    """Path relative to the host's root."""
    content: bytes
    mode: int = 0o644
    owner: int = 0


def files(instance: Instance, subnet: Subnet, image: Image) -> tuple[GuestFile, ...]:
    """Return the files to write into an instance's host before it boots.

    For an image with cloud-init, these are only a few, because cloud-init writes the others.
    """
    name = hostname(instance.private_ip)
    hosts = f"127.0.0.1 localhost\n{instance.private_ip} {name}.{DOMAIN} {name}\n"
    resolver = f"nameserver {RESOLVER_ADDRESS}\nsearch {DOMAIN}\noptions timeout:2 attempts:2\n"
    found = [
        GuestFile(path="etc/resolv.conf", content=resolver.encode()),
        GuestFile(path="run/localcloud/network", content="\n".join([*guest_commands(instance, subnet), ""]).encode()),
    ]
    if not image.accounts:
        found.append(GuestFile(path="run/localcloud/firmware-id", content=f"{firmware_id(instance.id)}\n".encode()))
        return tuple(found)
    found += [
        GuestFile(path="etc/hostname", content=f"{name}\n".encode()),
        GuestFile(path="etc/hosts", content=hosts.encode()),
        GuestFile(path="var/lib/cloud/instance/user-data.txt", content=instance.user_data, mode=0o700),
    ]
    if instance.public_key:
        key = f"{instance.public_key.strip()}\n".encode()
        found += [
            GuestFile(path=f"home/{user}/.ssh/authorized_keys", content=key, mode=0o600, owner=uid)
            for uid, user in enumerate(LOGIN_USERS, start=1000)
        ]
    return tuple(found)


class NamespaceHost(Host):
    """One instance in its own namespaces, over its own layer."""

    grace_s = 1.0

    def __init__(self, kind: NamespaceHosts, *, instance: Instance, subnet: Subnet, directory: Path) -> None:
        self.kind, self.image = kind, kind.images.get(instance.image_id, kind.machine)
        super().__init__(instance=instance, subnet=subnet, directory=directory)

    def _prepare(self) -> None:
        self.kind.volumes.make(self.instance.id, self.instance.volume_gib)
        volume = self.kind.volumes.path(self.instance.id)
        upper = volume / "upper"
        for path in (upper, volume / "work", self.directory / "root"):
            path.mkdir()
        upper.chmod(0o755)
        for file in files(self.instance, self.subnet, self.image):
            path = upper / file.path
            _make_parents(upper, path.parent, file.owner)
            path.write_bytes(file.content)
            path.chmod(file.mode)
            os.chown(path, file.owner, file.owner)

    def _start(self) -> FirstProcess:
        pairs = [text for bind in self.image.binds for text in (str(bind.source), bind.target)]
        name, lower = hostname(self.instance.private_ip), ":".join(map(str, self.image.lower))
        cached = nfs_client.MOUNT_OPTIONS if self.kind.shared.caches else ""
        paths = [str(self.directory), name, str(self.kind.volumes.path(self.instance.id)), str(self.kind.shared.path)]
        limit = self.kind.cpu_limit
        return FirstProcess(
            ["/bin/bash", str(GUEST / "init"), *paths, cached, lower, str(GUEST / self.image.boot), *pairs],
            network=self.network,
            output=self.console,
            namespaces=("--uts", "--ipc"),
            environment=self.image.environment,
            group=limit.make(self.instance.id) if limit else None,
            processors=limit.processors(self.instance.id) if limit else (),
        )

    def shut_down(self) -> None:
        """Send SIGTERM to the host's first process, which stops the others."""
        if self.process is not None:
            self.process.terminate()

    def remove(self) -> None:
        """Kill the host and remove its network, its files, its volume and its control group."""
        super().remove()
        self.kind.volumes.remove(self.instance.id)
        if self.kind.cpu_limit:
            self.kind.cpu_limit.remove(self.instance.id)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamespaceHosts:
    """Hosts in namespaces. Their shared file systems are directories of this machine."""

    machine: Image
    """This machine's root, for every image that is not in `images`."""
    images: Mapping[str, Image] = dataclasses.field(default_factory=dict)
    """Images by the id of their AMI."""
    layers: Path
    """Directory of the hosts' layers."""
    volumes: Volumes
    shared: SharedDirectory
    cpu_limit: CpuLimit | None = None
    """Limit of each host's processor time, or None for no limit."""
    answers_mounts: ClassVar[bool] = True

    @property
    def why_unlimited(self) -> str:
        """Return why the sizes of volumes are not enforced, or "" if they are."""
        return self.volumes.why_unlimited

    def directory(self, instance_id: str) -> Path:
        """Return the path of the directory for a host's files. `make` creates the directory."""
        return self.layers / "hosts" / instance_id

    def make(self, instance: Instance, subnet: Subnet, directory: Path) -> Host:
        """Create an instance's host, which `Host.boot` starts. Raises OSError or CommandError, and leaves no volume."""
        try:
            return NamespaceHost(self, instance=instance, subnet=subnet, directory=directory)
        except BaseException:
            self.volumes.remove(instance.id)
            raise

    def share(self, snapshot: Snapshot, routers: Mapping[str, Router]) -> None:
        """Create the directories of the shared file systems. The routers answer for their mount targets.

        Directories of deleted file systems remain until the cloud stops.
        """
        for target in snapshot.mount_targets:
            (self.shared.path / target.file_system_id).mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """Do nothing. Directories need no server."""


def _make_parents(root: Path, directory: Path, owner: int) -> None:
    """Create a directory and its missing parents below `root`.

    Directories in a user's home, and the home itself, belong to `owner` and are private, as in the image.
    """
    for parent in reversed([directory, *directory.parents]):
        if parent == root or not parent.is_relative_to(root) or parent.exists():
            continue
        parent.mkdir()
        inside = parent.relative_to(root).parts
        if owner and inside[0] == "home" and len(inside) > 1:
            os.chown(parent, owner, owner)
            parent.chmod(0o700)
