"""A host that is a machine of its own: a kernel, a disk, a network card, a serial console."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from pathlib import Path
from typing import Final

from localcloud.hosts.first_process import FirstProcess
from localcloud.hosts.host import Host, firmware_id
from localcloud.machines import monitor, qemu
from localcloud.machines.disks import RootDisk
from localcloud.machines.json_socket import NoAnswerError, RefusedError
from localcloud.machines.machine_network import bridge_commands, dhcp_configuration
from localcloud.machines.qemu import Disk, Hardware
from localcloud.network.addressing import mac
from localcloud.network.namespaces import run
from localcloud.snapshot import Instance, Subnet

log = logging.getLogger("localcloud.machine")

RUN_MACHINE: Final = Path(__file__).parent / "run_machine"
MEMORY_MIB: Final = 1536
"""Enough for one rank of TensorFlow."""
PROCESSORS: Final = {"tcg": 1, "kvm": 2}
"""Emulated ones only take turns on this machine's own."""
_ROOT_SIZE: Final = "8G"
"""That of the root volume of Debian's images."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MachineImage:
    """What the machines of one image share."""

    root: RootDisk
    shown: Path | None
    """Disk of the directories that machines see, read-only."""
    accelerator: str
    """`tcg` or `kvm`."""


class Machine(Host):
    """Run one instance as a machine, whose disk begins as its image's."""

    grace_s = 30.0

    def __init__(
        self, *, instance: Instance, subnet: Subnet, directory: Path, region: str, image: MachineImage
    ) -> None:
        self.image = image
        super().__init__(instance=instance, subnet=subnet, directory=directory, region=region)

    def _prepare(self) -> None:
        run(qemu.overlay(self.image.root.disk, self.directory / "disk", _ROOT_SIZE))
        commands = bridge_commands(self.instance, self.subnet)
        (self.directory / "network").write_text("".join(f"{line}\n" for line in commands), encoding="utf-8")
        configuration = dhcp_configuration(self.instance, self.subnet, self.region)
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
        sockets = {"agent": Path(self.agent), "monitor": self._monitor}
        arguments = [str(self.directory / name) for name in ("network", "dhcp")]
        return FirstProcess(
            ["/bin/bash", str(RUN_MACHINE), *arguments, *qemu.command(hardware, self.image.accelerator, **sockets)],
            network=self.network,
            output=self.console,
        )

    @property
    def agent(self) -> str:
        """Return the path of the socket on which the agent in the machine takes commands."""
        return str(self.directory / "agent")

    @property
    def _monitor(self) -> Path:
        return self.directory / "monitor"

    def shut_down(self) -> None:
        """Press the power button: the machine's own system shuts down, or does not."""
        if self.exit_code is None:
            with contextlib.suppress(NoAnswerError, RefusedError):
                monitor.power_down(self._monitor)
