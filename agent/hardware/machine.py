"""The local machine: processor, cores, memory, load, addresses, and the facts that were recorded when it booted.

Standard library only, because the node's own Python runs it.
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
import sys
from pathlib import Path
from typing import Final

from agent.hardware import gpus
from agent.spec.node_kinds import NodeKind

_SIOCGIFADDR: Final = 0x8915


def read_address(interface: str) -> str:
    """Return a network interface's IPv4 address, or "" if it has none."""
    request = array.array("B", struct.pack("256s", interface.encode()[:15]))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError:
            return ""
    return socket.inet_ntoa(request[20:24].tobytes())


def own_addresses() -> dict[str, str]:
    """Return the name of the first network interface for each IPv4 address of this machine, also 127.0.0.1."""
    return {address: name for _, name in reversed(socket.if_nameindex()) if (address := read_address(name))}


def describe_unresolved_name() -> str:
    """Return why Gloo would crash this machine's ranks in hvd.init(), and the fix; "" if its host name resolves."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return (
            f"this machine's hostname, {name}, does not resolve to an address, which crashes Horovod's ranks over "
            f"Gloo. To fix: echo '127.0.1.1 {name}' >> /etc/hosts (on several machines: with its network address)"
        )
    return ""


NODE_CONF: Final = Path("/opt/deepcdk/node.conf")
"""File of facts about this node. `stacks/scripts/boot.sh` writes it, with values quoted for a shell."""


def read_node_conf(conf: Path = NODE_CONF) -> dict[str, str]:
    """Return the facts in node.conf by name; {} if this machine is not a node. Malformed lines are skipped."""
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
    """Return this node's kind, from node.conf or else detected from the processor, the GPUs and this Python.

    Raises SpecError for an unsupported processor, or an invalid kind in node.conf.
    """
    if registered := read_node_conf(conf).get("kind"):
        return NodeKind.parse(registered)
    python = ".".join(platform.python_version_tuple()[:2])
    return NodeKind.parse(f"{platform.machine()}{_gpus_as_shown()}-py{python}")


def _gpus_as_shown() -> str:
    """Return the GPU part of the kind, as -sm90, from device files and nvidia-smi; "" without GPUs.

    It is -gpu if nvidia-smi does not print one compute capability for all GPUs.
    """
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
    """A machine's processor, memory and load at one moment."""

    processor: str
    cores: int
    """Logical cores that this process may use."""
    memory_gib: float
    load: float
    """Average number of running or waiting processes in the last minute: other activity on the machine."""

    def __str__(self) -> str:
        return f"{self.processor}, {self.cores} cores, {self.memory_gib:.0f} GiB, load {self.load:.2f} at the start"


def this_machine() -> Machine:
    """Return this machine's facts, as the kernel reports them."""
    text = PROCESSORS.read_text() if PROCESSORS.exists() else ""
    return Machine(
        processor=processor_name(text) or platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        load=os.getloadavg()[0],
    )


def processor_name(cpuinfo: str) -> str | None:
    """Return the first processor's model from /proc/cpuinfo; None if it has no model name, as on ARM."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return " ".join(value.split())
    return None


def vector_bits(cpuinfo: str) -> int:
    """Return the first processor's vector width in bits: 512 with AVX-512, 256 with AVX2, otherwise 128.

    `cpuinfo` is the text of /proc/cpuinfo. Without flags in it, as on ARM, the result is also 128.
    """
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "flags":
            flags = value.split()
            return 512 if "avx512f" in flags else 256 if "avx2" in flags else 128
    return 128


def this_vector_bits() -> int:
    """Return this machine's vector width in bits; 128 if the kernel does not report the processor's flags."""
    return vector_bits(PROCESSORS.read_text() if PROCESSORS.exists() else "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Platform:
    """The properties of a machine that decide whether a binary runs on it."""

    system: str  # as platform.system() prints it: Linux
    machine: str  # x86_64, aarch64
    libc: str  # glibc-2.36: a wheel that is built against a newer glibc does not load on an older one
    python: tuple[int, int]  # part of a wheel's name, as a tag

    @property
    def python_tag(self) -> str:
        """Return the Python version's tag in a wheel's name, such as cp312."""
        return f"cp{self.python[0]}{self.python[1]}"

    @property
    def inputs(self) -> dict[str, str]:
        """Return the properties by name, to compute the digest of a build for this platform."""
        return {"system": self.system, "machine": self.machine, "libc": self.libc, "python": self.python_tag}


def this_platform() -> Platform:
    """Return the platform of the running Python."""
    return Platform(
        system=platform.system(),
        machine=platform.machine(),
        libc="-".join(platform.libc_ver()),
        python=sys.version_info[:2],
    )


def base_python() -> str:
    """Return the real path of the base Python: not a virtual environment's Python, and not a link.

    A virtual environment finds the standard library relative to its base Python.
    """
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))
