"""Hosts that are machines, and the file servers with them."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from localcloud.errors import LocalCloudError
from localcloud.hosts.host import Host
from localcloud.layout import Layout
from localcloud.machines.file_server import FileServer, ServerImage
from localcloud.machines.machine import Machine, MachineImage
from localcloud.network.router import Router
from localcloud.snapshot import Instance, Snapshot, Subnet


class NoMachineError(LocalCloudError, LookupError):
    """Report an instance whose image is not one of machines. Carries `image_id` and the ids that are `known`."""

    def __init__(self, image_id: str, known: list[str]) -> None:
        self.image_id, self.known = image_id, known
        super().__init__(
            f"no machine boots from {image_id}: with --hosts vm there is only {', '.join(known)}, "
            "the image of --image, by its SSM parameter"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MachineHosts:
    """Make machines, and keep a file server for each shared file system."""

    images: Mapping[str, MachineImage]
    """By the id of the AMI."""
    server: ServerImage
    layout: Layout
    region: str
    servers: dict[str, FileServer] = dataclasses.field(default_factory=dict)
    """The file servers that run, by the id of the file system."""
    answers_mounts: ClassVar[bool] = False

    def directory(self, instance_id: str) -> Path:
        """Return where the files of a host are: on disk, as its disk may grow beyond the memory."""
        return self.layout.data / "machines" / instance_id

    def make(self, instance: Instance, subnet: Subnet, directory: Path) -> Host:
        """Make a host. Raises OSError or LocalCloudError where that cannot be."""
        if instance.image_id not in self.images:
            raise NoMachineError(instance.image_id, sorted(self.images))
        image = self.images[instance.image_id]
        return Machine(instance=instance, subnet=subnet, directory=directory, region=self.region, image=image)

    def share(self, snapshot: Snapshot, routers: Mapping[str, Router]) -> None:
        """Have a file server for each file system that has a mount target. Of Lustre there is none."""
        addresses: dict[str, list[str]] = defaultdict(list)
        vpcs: dict[str, str] = {}
        for target in snapshot.mount_targets:
            if target.service == "efs":
                addresses[target.file_system_id].append(target.ip)
                vpcs[target.file_system_id] = target.vpc_id
        for id in self.servers.keys() - addresses.keys():
            self.servers.pop(id).remove()
        for id in addresses:
            if id not in self.servers:
                self.servers[id] = FileServer(
                    id,
                    image=self.server,
                    directory=self.directory(id),
                    console=self.layout.console(id),
                    router=routers[vpcs[id]],
                )
            self.servers[id].keep(addresses[id])

    def close(self) -> None:
        """End all file servers."""
        while self.servers:
            self.servers.popitem()[1].remove()
