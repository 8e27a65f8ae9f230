"""This machine: its processor, cores, memory, load, addresses, and what its boot has registered of it.

Standard library only, since the node's own Python runs it.
"""

from __future__ import annotations

import array
import contextlib
import dataclasses
import fcntl
import os
import platform
import re
import shlex
import socket
import struct
from pathlib import Path
from typing import Final

from agent.hardware import gpus
from agent.spec.kinds import NodeKind

_SIOCGIFADDR: Final = 0x8915


def read_address(interface: str) -> str:
    """Return an interface's IPv4 address; "" where it has none."""
    request = array.array("B", struct.pack("256s", interface.encode()[:15]))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError:
            return ""
    return socket.inet_ntoa(request[20:24].tobytes())


def own_addresses() -> dict[str, str]:
    """Return this machine's IPv4 addresses, each with its network interface, the first one if several have it."""
    return {address: name for _, name in reversed(socket.if_nameindex()) if (address := read_address(name))}


NODE_CONF: Final = Path("/opt/deepcdk/node.conf")
"""`stacks/scripts/node.sh` writes it, with values quoted as for a shell."""


def read_node_conf(conf: Path = NODE_CONF) -> dict[str, str]:
    """Return the facts by their names; {} on a machine that is no node. A line that is none is left out."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in conf.read_text(encoding="utf-8", errors="replace").splitlines():
            name, equals, quoted = line.partition("=")
            with contextlib.suppress(ValueError):
                words = shlex.split(quoted)
                if equals and len(words) < 2:
                    found[name] = "".join(words)
    return found


def this_node_kind(conf: Path = NODE_CONF) -> NodeKind:
    """Return this node's kind. Raises SpecError for a processor that nothing here is built for."""
    if registered := read_node_conf(conf).get("kind"):
        return NodeKind.parse(registered)
    python = ".".join(platform.python_version_tuple()[:2])
    return NodeKind.parse(f"{platform.machine()}{_gpus_as_shown()}-py{python}")


def _gpus_as_shown() -> str:
    """Return the end of the kind's word for the GPUs whose device files are there."""
    if not gpus.count_gpu_devices():
        return ""
    shown: set[str] = set()
    with contextlib.suppress(gpus.NvidiaSmiError):
        shown = {line.strip().replace(".", "") for line in (gpus.query(("compute_cap",)) or "").splitlines()}
    capability = shown.pop() if len(shown) == 1 else ""
    return f"-sm{capability}" if re.fullmatch("[1-9][0-9]{1,2}", capability) else "-gpu"


PROCESSORS: Final = Path("/proc/cpuinfo")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine at one moment."""

    processor: str
    cores: int
    """Logical cores that this process may use."""
    memory_gib: float
    load: float
    """Processes that ran or waited, mean of the last minute: what else the machine was doing."""

    def __str__(self) -> str:
        return f"{self.processor}, {self.cores} cores, {self.memory_gib:.0f} GiB, load {self.load:.2f} at the start"


def this_machine() -> Machine:
    """Read this machine's facts from the kernel."""
    text = PROCESSORS.read_text() if PROCESSORS.exists() else ""
    return Machine(
        processor=processor_name(text) or platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        load=os.getloadavg()[0],
    )


def processor_name(cpuinfo: str) -> str | None:
    """Return the model of the first processor of /proc/cpuinfo; None where it has none, as on ARM."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return " ".join(value.split())
    return None


def vector_bits(cpuinfo: str) -> int:
    """Return the width of the first processor's vectors by the flags of /proc/cpuinfo; 128 where it names none."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "flags":
            flags = value.split()
            return 512 if "avx512f" in flags else 256 if "avx2" in flags else 128
    return 128


def this_vector_bits() -> int:
    """Return the width of this machine's vectors."""
    return vector_bits(PROCESSORS.read_text() if PROCESSORS.exists() else "")
