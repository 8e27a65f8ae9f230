"""QEMU's command line, commands that create disks, and a check whether KVM works on this machine."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

COMMAND: Final = "qemu-system-x86_64"
IMAGE_COMMAND: Final = "qemu-img"
TAP: Final = "tap0"
RUN_MACHINE: Final = Path(__file__).parent / "run_machine"
"""Script that sets up a machine's network and then runs QEMU."""
KVM: Final = Path("/dev/kvm")
AGENT_PORT: Final = "org.qemu.guest_agent.0"
"""Name of the serial port that the agent in the machine opens."""

# A processor with AVX, which TensorFlow needs. With an emulated x2APIC or deadline timer, clocks stall if several
# machines are busy.
_PROCESSORS: Final = {
    "tcg": ("-accel", "tcg,thread=multi", "-cpu", "IvyBridge,x2apic=off,tsc-deadline=off"),
    "kvm": ("-accel", "kvm", "-cpu", "host"),
}

_BOOTED: Final = b"Linux version"
"""First output of a kernel that boots."""
_PROBE_S: Final = 5.0
"""Maximum time until the kernel's first output. With working KVM it takes tenths of a second."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Disk:
    """A disk of a machine. The first one is /dev/vda."""

    path: Path
    format: str
    """`qcow2` or `raw`."""
    read_only: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hardware:
    """The components of a machine."""

    kernel: Path
    initrd: Path
    disks: tuple[Disk, ...]
    """The first disk contains the root."""
    mac: str
    memory_mib: int
    processors: int
    firmware_id: str
    """UUID and serial number."""
    product: str
    """Product name in the firmware. On EC2 this is the instance type."""


def command(hardware: Hardware, accelerator: str, *, agent: Path, monitor: Path) -> list[str]:
    """Return the command that runs a machine. Its console is standard output, its network card a tap device.

    `accelerator` is `tcg` or `kvm`. QEMU creates the sockets `agent` and `monitor`.
    """
    vendor = "Amazon EC2"
    firmware = f"uuid={hardware.firmware_id},serial={hardware.firmware_id}"
    return [
        *(COMMAND, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35"),
        *_PROCESSORS[accelerator],
        *("-m", f"{hardware.memory_mib}M", "-smp", str(hardware.processors)),
        *("-smbios", f"type=0,vendor={vendor},version=1.0"),
        *("-smbios", f"type=1,manufacturer={vendor},product={hardware.product},{firmware}"),
        *("-kernel", str(hardware.kernel), "-initrd", str(hardware.initrd)),
        *("-append", "root=/dev/vda rw console=ttyS0,115200"),
        *(word for disk in hardware.disks for word in _drive(disk)),
        *("-netdev", f"tap,id=network,ifname={TAP},script=no,downscript=no"),
        *("-device", f"virtio-net-pci,netdev=network,mac={hardware.mac}"),
        *("-device", "virtio-rng-pci"),
        *("-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"),
        *("-chardev", f"socket,id=agent,path={agent},server=on,wait=off", "-device", "virtio-serial-pci"),
        *("-device", f"virtserialport,chardev=agent,name={AGENT_PORT}"),
        *("-chardev", f"socket,id=monitor,path={monitor},server=on,wait=off", "-mon", "chardev=monitor,mode=control"),
    ]


def overlay(base: Path, disk: Path, size: str) -> list[str]:
    """Return the command that creates a disk of a size, such as 8G, as a qcow2 overlay on the raw disk `base`.

    `base` is not changed.
    """
    return [IMAGE_COMMAND, "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(base), str(disk), size]


def empty(disk: Path, size: str) -> list[str]:
    """Return the command that creates an empty disk in the format qcow2. A machine sees `size`, such as 16G."""
    return [IMAGE_COMMAND, "create", "-q", "-f", "qcow2", str(disk), size]


def _drive(disk: Disk) -> Sequence[str]:
    """Return QEMU's options for a disk."""
    # A disk is deleted with its cloud, so a machine's syncs need not reach this machine's disk.
    options = "readonly=on" if disk.read_only else "cache=unsafe,discard=unmap"
    return ("-drive", f"file={disk.path},format={disk.format},if=virtio,{options}")


def accelerator(kernel: Path, device: Path = KVM) -> str:
    """Return `kvm` if a kernel boots with it, otherwise `tcg`, which is about ten times as slow.

    The kernel is booted as a test, for 5 s at most, because an accessible device that creates machines is not
    sufficient. If this machine is itself a guest, KVM may not be able to run a stock kernel.
    """
    if not os.access(device, os.R_OK | os.W_OK):
        return "tcg"
    probe = [
        *(COMMAND, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35"),
        *("-accel", "kvm", "-cpu", "host", "-m", "256M", "-no-reboot", "-serial", "stdio"),
        *("-kernel", str(kernel), "-append", "console=ttyS0,115200 panic=-1"),
    ]
    try:
        # Without a root the kernel panics and QEMU exits. A kernel that hangs is killed.
        done = subprocess.run(probe, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_S, check=False)
        said = done.stdout
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
    return "kvm" if _BOOTED in said else "tcg"
