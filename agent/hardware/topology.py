"""Read a machine's topology: cores, memory nodes, NVIDIA GPUs, and the CPU quota of its control group (v1 or v2).

All facts come from the kernel's files under a root directory, so a copy of these files works too. Standard library
only.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from agent.errors import ReportedError
from agent.hardware.gpus import PciGpu, count_gpu_devices

LARGEST: Final = 1 << 16
"""More CPUs than any kernel supports. A damaged list of CPUs cannot fill the memory."""


def parse_list(text: str) -> frozenset[int]:
    """Parse a list such as 0-3,8, which can be empty. Raises ValueError with the malformed part."""
    found: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part, re.ASCII)
        if not match or not int(match[1]) <= int(match[2] or match[1]) < LARGEST:
            raise ValueError(f"{part!r} is neither a number nor a range")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)


def show_list(numbers: Iterable[int]) -> str:
    """Format numbers as a list with ranges, such as 0-3,8."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


GROUPS: Final = Path("sys/fs/cgroup")
OWN: Final = Path("proc/self/cgroup")
CPUS: Final = Path("sys/devices/system/cpu")
NODES: Final = Path("sys/devices/system/node")
PCI: Final = Path("sys/bus/pci/devices")
PROCESSES: Final = Path("proc/self/ns/pid")
MACHINES_OWN: Final = "pid:[4026531836]"
"""Linux's fixed number of the initial PID namespace (PROC_PID_INIT_INO). A container has another number."""

NVIDIA: Final = 0x10DE
DISPLAY: Final = 0x03
"""PCI base class of display controllers: 0x0300 has a screen, 0x0302 has none."""


class TopologyError(ReportedError, ValueError):
    """Report a kernel file that is missing or malformed, or that lists no usable CPU. Carries `path` and `text`."""

    def __init__(self, path: Path, text: str, what: str) -> None:
        self.path, self.text = path, text
        super().__init__(f"{path} {what}; use --placement none to ignore the machine's topology")


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Core:
    """A physical core."""

    node: int
    """Memory node of the core."""
    socket: int
    cpus: tuple[int, ...]
    """The usable logical CPUs of the core: its hardware threads."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Topology:
    """The part of a machine that this process may use."""

    cores: tuple[Core, ...]
    """Physical cores, by memory node, socket and number."""
    nodes: tuple[int, ...]
    """Memory nodes of the machine, including those without cores."""
    gpus: tuple[PciGpu, ...] = ()
    gpus_on_bus: int = 0
    """GPUs on the bus. `gpus` is empty if a container has a different number of device files."""
    offline: tuple[int, ...] = ()
    """Logical CPUs that are switched off."""
    quota_cpus: float = math.inf
    """CPU time that the control group grants, in CPUs."""
    shared: bool = False
    """Whether other containers may compute on these cores: this is a container that may use all CPUs of the machine."""

    @property
    def cpus(self) -> tuple[int, ...]:
        """Return the usable logical CPUs."""
        return tuple(sorted(cpu for core in self.cores for cpu in core.cpus))

    @property
    def sockets(self) -> int:
        """Return the number of sockets with usable cores."""
        return len({core.socket for core in self.cores})

    def __str__(self) -> str:
        parts = [
            _counted(self.sockets, "socket"),
            _counted(len(self.nodes), "memory node"),
            _counted(len(self.cores), "core"),
            _counted(len(self.cpus), "CPU"),
            *([_counted(len(self.gpus), "GPU")] if self.gpus else []),
            *([f"{len(self.offline)} CPUs off"] if self.offline else []),
            *([f"quota {self.quota_cpus:g} CPUs"] if math.isfinite(self.quota_cpus) else []),
        ]
        return ", ".join(parts)


def read_quota(root: Path) -> float:
    """Return the CPU time, in CPUs, that this process's control group and its parents grant; inf without a quota.

    A container sees its own group as the root, so missing groups in the path are skipped. The set of usable CPUs is
    not read here, because the process's affinity already reflects it.
    """
    quotas = [math.inf]
    for line in (_text(root / OWN) or "").splitlines():  # ID:CONTROLLERS:PATH; version 2 has no controllers
        controllers, _, path = line.partition(":")[2].partition(":")
        is_first = "cpu" in controllers.split(",")
        if (controllers and not is_first) or not path.startswith("/") or ".." in path:
            continue
        for mount in (",".join(sorted(controllers.split(","))), "cpu") if is_first else ("", "unified"):
            for parent in (PurePosixPath(path), *PurePosixPath(path).parents):
                group = root / GROUPS / mount / str(parent).lstrip("/")
                files = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if is_first else ("cpu.max",)
                quotas.append(parse_cpu_max(" ".join(_text(group / name) or "" for name in files)))
    return min(quotas)


def parse_cpu_max(text: str) -> float:
    """Parse `QUOTA PERIOD` in microseconds into CPUs. `max`, -1 and malformed text mean no limit, inf."""
    match = re.fullmatch(r"([0-9]{1,18}) ([0-9]{1,18})", text)
    quota, period = (int(match[1]), int(match[2])) if match else (0, 0)
    return quota / period if quota and period else math.inf


def read_topology(root: Path, allowed: Collection[int] | None = None) -> Topology:
    """Read the topology of the machine under `root`. `allowed` are the usable CPUs; None: all that are online.

    If the kernel does not report memory nodes, sockets or hardware threads, there is one of each. GPUs are left out if
    a container has another number of device files. Raises TopologyError for a malformed file, or if no CPU is usable.
    """
    online = _list(root / CPUS / "online")
    if online is None:
        raise TopologyError(root / CPUS / "online", "", "is missing: the machine's topology can only be read on Linux")
    usable = online & set(allowed if allowed is not None else online)
    if not usable:
        text = _text(root / CPUS / "online") or ""
        what = f"lists the CPUs {text[:80]!r}, but this process may use none of these CPUs"
        raise TopologyError(root / CPUS / "online", text, what)
    node_of, nodes = _memory_nodes(root)
    cores: dict[int, Core] = {}
    for cpu in sorted(usable):
        if cpu not in cores:
            core = _core(root, cpu, usable - cores.keys(), node_of)
            cores.update(dict.fromkeys(core.cpus, core))
    gpus = _gpus(root, node_of, nodes)

    return Topology(
        cores=tuple(sorted(set(cores.values()))),
        nodes=nodes,
        gpus=gpus if count_gpu_devices(root) == len(gpus) else (),
        gpus_on_bus=len(gpus),
        offline=tuple(sorted(_list(root / CPUS / "offline") or ())),
        quota_cpus=read_quota(root),
        shared=_in_container(root) and usable == online,
    )


def _core(root: Path, cpu: int, usable: frozenset[int], node_of: dict[int, int]) -> Core:
    """Return the core that a logical CPU belongs to, with those of its logical CPUs that are in `usable`.

    `node_of` maps CPUs to memory nodes. An unknown memory node or socket is 0.
    """
    topology = root / CPUS / f"cpu{cpu}" / "topology"
    siblings = _list(topology / "core_cpus_list") or _list(topology / "thread_siblings_list") or frozenset({cpu})
    socket = _number(topology / "physical_package_id")
    return Core(
        node=node_of.get(cpu, 0),
        socket=max(0, socket or 0),  # -1 if the firmware does not report it
        cpus=tuple(sorted((siblings | {cpu}) & usable)),
    )


def _memory_nodes(root: Path) -> tuple[dict[int, int], tuple[int, ...]]:
    """Return a dict from CPU to memory node, and all memory nodes.

    CPUs that the kernel assigns to no node are missing from the dict. If the kernel does not list its nodes, only node
    0 is returned.
    """
    nodes = tuple(sorted(_list(root / NODES / "online") or {0}))
    return {cpu: node for node in nodes for cpu in _list(root / NODES / f"node{node}" / "cpulist") or ()}, nodes


def _gpus(root: Path, node_of: dict[int, int], nodes: tuple[int, ...]) -> tuple[PciGpu, ...]:
    """Return NVIDIA's GPUs, sorted by PCI address.

    A GPU's memory node is the reported one, or else that of its nearest CPUs. It is None if these are on several nodes.
    """
    found = []
    for device in sorted((root / PCI).glob("*")):
        if (_number(device / "vendor"), (_number(device / "class") or 0) >> 16) != (NVIDIA, DISPLAY):
            continue
        node = _number(device / "numa_node")
        beside = {node_of.get(cpu) for cpu in _list(device / "local_cpulist") or ()}
        if node is None or node < 0:
            node = beside.pop() if len(beside) == 1 else None
        found.append((device.name, node if node in nodes else None))
    return tuple(PciGpu(index=index, address=address, node=node) for index, (address, node) in enumerate(found))


def _in_container(root: Path) -> bool:
    """Return whether this process is in a container's PID namespace; False for a copy of a machine's files."""
    try:
        return str((root / PROCESSES).readlink()) != MACHINES_OWN
    except OSError:
        return False


def _text(path: Path) -> str | None:
    """Return a file's stripped content, or None if it cannot be read: the kernel lists some unreadable files."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


def _list(path: Path) -> frozenset[int] | None:
    text = _text(path)
    if text is None:
        return None
    try:
        return parse_list(text)
    except ValueError:
        raise TopologyError(path, text, f"contains {text[:80]!r}, not a list of CPUs such as 0-3,8") from None


def _number(path: Path) -> int | None:
    text = _text(path)
    if text is None:
        return None
    try:
        return int(text, 0)
    except ValueError:
        raise TopologyError(path, text, f"contains {text[:80]!r}, not a number") from None


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
