"""A host that is a QEMU machine, with its own kernel, disk, network card and serial console."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from localcloud.cloud_paths import Layout
from localcloud.errors import LocalCloudError
from localcloud.hosts.host import FirstProcess, Host, firmware_id
from localcloud.machines import qemu, sockets
from localcloud.machines.disks import RootDisk
from localcloud.machines.file_server import FileServer, ServerImage
from localcloud.machines.machine_network import bridge_commands, dhcp_configuration
from localcloud.machines.qemu import Disk, Hardware
from localcloud.network.addressing import mac
from localcloud.network.namespaces import run
from localcloud.network.router import Router
from localcloud.snapshot import Instance, Snapshot, Subnet

MEMORY_MIB: Final = 1536
"""Enough for one rank of TensorFlow."""
PROCESSORS: Final = {"tcg": 1, "kvm": 2}
"""More emulated processors would only share this machine's processors."""
_ROOT_SIZE: Final = "8G"
"""Size of the root volume of Debian's images."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MachineImage:
    """Properties of all machines with one image."""

    root: RootDisk
    shown: Path | None
    """Disk with the directories that machines see read-only, or None."""
    accelerator: str
    """`tcg` or `kvm`."""


class Machine(Host):
    """One instance as a machine. Its disk starts as a copy of its image's disk."""

    grace_s = 30.0

    def __init__(self, *, instance: Instance, subnet: Subnet, directory: Path, image: MachineImage) -> None:
        self.image = image
        super().__init__(instance=instance, subnet=subnet, directory=directory)

    def _prepare(self) -> None:
        run(qemu.overlay(self.image.root.disk, self.directory / "disk", _ROOT_SIZE))
        commands = bridge_commands(self.instance, self.subnet)
        (self.directory / "network").write_text("".join(f"{line}\n" for line in commands), encoding="utf-8")
        configuration = dhcp_configuration(self.instance, self.subnet)
        (self.directory / "dhcp").write_text(configuration, encoding="utf-8")

    def _start(self) -> FirstProcess:
        shown = (Disk(path=self.image.shown, format="raw", read_only=True),) if self.image.shown else ()
        hardware = Hardware(
            kernel=self.image.root.kernel,
            initrd=self.image.root.initrd,
            disks=(Disk(path=self.directory / "disk", format="qcow2"), *shown),
            mac=mac(self.instance.private_ip),
            memory_mib=MEMORY_MIB,
            processors=PROCESSORS[self.image.accelerator],
            firmware_id=firmware_id(self.instance.id),
            product=self.instance.instance_type,
        )
        paths = {"agent": Path(self.agent), "monitor": self._monitor}
        arguments = [str(self.directory / name) for name in ("network", "dhcp")]
        return FirstProcess(
            [
                "/bin/bash",
                str(qemu.RUN_MACHINE),
                *arguments,
                *qemu.command(hardware, self.image.accelerator, **paths),
            ],
            network=self.network,
            output=self.console,
        )

    @property
    def agent(self) -> str:
        """Return the path of the socket for commands to the agent in the machine."""
        return str(self.directory / "agent")

    @property
    def _monitor(self) -> Path:
        return self.directory / "monitor"

    def shut_down(self) -> None:
        """Press the machine's power button, which its operating system may ignore. An error is ignored too."""
        if self.exit_code is None:
            with contextlib.suppress(sockets.NoAnswerError, sockets.RefusedError):
                sockets.power_down(self._monitor)


class NoMachineError(LocalCloudError, LookupError):
    """The instance's image cannot boot a machine. Carries `image_id` and the `known` ids."""

    def __init__(self, image_id: str, known: list[str]) -> None:
        self.image_id, self.known = image_id, known
        super().__init__(
            f"no machine can boot from the image {image_id}: with --hosts vm, launch instances from "
            f"{', '.join(known)}, the image of `start --image`"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MachineHosts:
    """Creates machines, and a file server for each shared file system."""

    images: Mapping[str, MachineImage]
    """Images by the id of their AMI."""
    server: ServerImage
    layout: Layout
    servers: dict[str, FileServer] = dataclasses.field(default_factory=dict)
    """The running file servers, by the id of the file system."""
    answers_mounts: ClassVar[bool] = False
    why_unlimited: ClassVar[str] = f"each machine has a disk of {_ROOT_SIZE}"

    def directory(self, instance_id: str) -> Path:
        """Return the path of the directory for a host's files. It is on disk, because the files may outgrow the memory.

        `make` creates the directory.
        """
        return self.layout.data / "machines" / instance_id

    def make(self, instance: Instance, subnet: Subnet, directory: Path) -> Host:
        """Create a machine for an instance; `Host.boot` starts it. Raises OSError or LocalCloudError, for example for
        an unknown image.
        """
        if instance.image_id not in self.images:
            raise NoMachineError(instance.image_id, sorted(self.images))
        image = self.images[instance.image_id]
        return Machine(instance=instance, subnet=subnet, directory=directory, image=image)

    def share(self, snapshot: Snapshot, routers: Mapping[str, Router]) -> None:
        """Run a file server for each EFS file system with mount targets, and remove all others with their data.

        Lustre file systems are ignored.
        """
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
            self.servers[id].update(addresses[id])

    def close(self) -> None:
        """Kill all file servers, and remove their files."""
        while self.servers:
            self.servers.popitem()[1].remove()
