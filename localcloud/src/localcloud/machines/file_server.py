"""A shared file system as a machine with the kernel's NFS server, at the addresses of its mount targets."""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from localcloud.hosts.host import FirstProcess, firmware_id
from localcloud.machines import qemu
from localcloud.machines.disks import RootDisk
from localcloud.machines.machine_network import (
    server_commands,
    server_link,
    server_link_commands,
    server_ruleset,
)
from localcloud.machines.qemu import Disk, Hardware
from localcloud.network.namespaces import NetworkNamespace, run
from localcloud.network.router import Router

log = logging.getLogger("localcloud.file_server")

MEMORY_MIB: Final = 512
_SIZE: Final = "16G"
"""Default size of a file system."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerImage:
    """Properties of all file servers."""

    root: RootDisk
    accelerator: str
    """`tcg` or `kvm`."""
    size: str = _SIZE
    """Size of a file system, such as 64M."""


class FileServer:
    """The machine that serves one file system. Creating it starts the machine.

    Create it in a thread that lives as long as the machine.
    """

    def __init__(self, id: str, *, image: ServerImage, directory: Path, console: Path, router: Router) -> None:
        self.id, self.image, self.directory, self.router = id, image, directory, router
        self._addresses: set[str] = set()
        directory.mkdir(parents=True)
        console.parent.mkdir(parents=True, exist_ok=True)
        self._console = os.open(console, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        run(qemu.overlay(image.root.disk, directory / "disk", "4G"))
        run(qemu.empty(directory / "data", image.size))
        (directory / "network").write_text("")
        self.network = NetworkNamespace({"ipv4/ip_forward": "1"})
        router.namespace.ip(server_link_commands(id, self.network.path))
        router.namespace.set_sysctls({f"ipv4/neigh/{server_link(id)}/proxy_delay": "0"})
        self.network.ip(server_commands())
        self.network.nft(server_ruleset())
        self.process = self._start()

    def update(self, addresses: Iterable[str]) -> None:
        """Set the server's addresses (its mount targets'), and restart its machine if it has exited."""
        wanted = set(addresses)
        gone, new = sorted(self._addresses - wanted), sorted(wanted - self._addresses)
        self.network.ip([f"addr delete {ip}/32 dev eth0" for ip in gone] + [f"addr add {ip}/32 dev eth0" for ip in new])
        link = server_link(self.id)
        self.router.namespace.ip(
            [f"route delete {ip}/32 dev {link}" for ip in gone] + [f"route replace {ip}/32 dev {link}" for ip in new]
        )
        self._addresses = wanted
        if (code := self.process.exit_code) is not None:
            log.error("the file server of %s exited with status %d; restarting it", self.id, code)
            self.process = self._start()

    def remove(self) -> None:
        """Kill the machine and remove its network and its files."""
        self.process.kill()
        self.network.close()
        os.close(self._console)
        shutil.rmtree(self.directory)

    def _start(self) -> FirstProcess:
        hardware = Hardware(
            kernel=self.image.root.kernel,
            initrd=self.image.root.initrd,
            disks=tuple(Disk(path=self.directory / name, format="qcow2") for name in ("disk", "data")),
            mac="02:45:00:00:00:02",
            memory_mib=MEMORY_MIB,
            processors=1,
            firmware_id=firmware_id(self.id),
            product="file server",
        )
        sockets = {name: self.directory / name for name in ("agent", "monitor")}
        return FirstProcess(
            [
                *("/bin/bash", str(qemu.RUN_MACHINE), str(self.directory / "network"), ""),
                *qemu.command(hardware, self.image.accelerator, **sockets),
            ],
            network=self.network,
            output=self._console,
        )
