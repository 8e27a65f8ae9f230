"""Trees of kernel files as on real machines; each states its source."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from agent.hardware.topology import show_list

RECORDED: dict[str, str] = {
    "sys/devices/system/cpu/online": "0-1",
    "sys/devices/system/cpu/offline": "",
    "sys/devices/system/cpu/possible": "0-1",
    "sys/devices/system/cpu/present": "0-1",
    "sys/devices/system/cpu/cpu0/topology/core_cpus_list": "0",
    "sys/devices/system/cpu/cpu0/topology/core_id": "0",
    "sys/devices/system/cpu/cpu0/topology/physical_package_id": "0",
    "sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0",
    "sys/devices/system/cpu/cpu1/online": "1",
    "sys/devices/system/cpu/cpu1/topology/core_cpus_list": "1",
    "sys/devices/system/cpu/cpu1/topology/core_id": "1",
    "sys/devices/system/cpu/cpu1/topology/physical_package_id": "0",
    "sys/devices/system/cpu/cpu1/topology/thread_siblings_list": "1",
    "sys/devices/system/node/online": "0",
    "sys/devices/system/node/possible": "0",
    "sys/devices/system/node/node0/cpulist": "0-1",
    "sys/devices/system/node/node0/distance": "10",
    "sys/bus/pci/devices/0000:00:00.0/vendor": "0x8086",
    "sys/bus/pci/devices/0000:00:00.0/class": "0x060000",
    "sys/bus/pci/devices/0000:00:00.0/numa_node": "-1",
    "sys/bus/pci/devices/0000:00:00.0/local_cpulist": "0-1",
    "sys/bus/pci/devices/0000:00:03.0/vendor": "0x1af4",
    "sys/bus/pci/devices/0000:00:03.0/class": "0x020000",
    "sys/bus/pci/devices/0000:00:03.0/numa_node": "-1",
    "sys/bus/pci/devices/0000:00:03.0/local_cpulist": "0-1",
    "proc/self/cgroup": "9:name=systemd:/\n8:pids:/\n4:memory:/tasks/1\n3:cpuset:/\n2:cpuacct:/\n1:cpu:/\n0::/",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
    "sys/fs/cgroup/cpuset/cpuset.cpus": "0-1",
    "sys/fs/cgroup/cpuset/cpuset.effective_cpus": "0-1",
    "sys/fs/cgroup/unified/cgroup.procs": "1",
}
"""Recorded on a virtual machine with two Xeon cores and Linux 6.18, with cgroups of versions 1 and 2."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Built:
    """A machine with files as in the kernel's documentation. They were not recorded on a real machine."""

    nodes: int
    cores_per_node: int
    threads: int = 1
    gpu_nodes: tuple[int, ...] = ()
    """The memory node of each GPU, in the order of the bus."""
    offline: frozenset[int] = frozenset()

    def files(self) -> dict[str, str]:
        """Return the files. CPUs are numbered as on x86: first threads of all cores, node by node, then second ones."""
        cores = self.nodes * self.cores_per_node
        everything = range(cores * self.threads)
        files = {
            "sys/devices/system/cpu/online": show_list(set(everything) - self.offline),
            "sys/devices/system/cpu/offline": show_list(self.offline),
            "sys/devices/system/node/online": show_list(range(self.nodes)),
        }
        for cpu in everything:
            if cpu in self.offline:  # the kernel removes its topology
                continue
            topology = f"sys/devices/system/cpu/cpu{cpu}/topology"
            siblings = set(range(cpu % cores, cores * self.threads, cores)) - self.offline
            files[f"{topology}/thread_siblings_list"] = show_list(siblings)
            files[f"{topology}/physical_package_id"] = str(cpu % cores // self.cores_per_node)
        for node in range(self.nodes):
            files[f"sys/devices/system/node/node{node}/cpulist"] = show_list(self.node_cpus(node))
        for number, node in enumerate(self.gpu_nodes):
            device = f"sys/bus/pci/devices/0000:00:{0x17 + number:02x}.0"
            files |= {f"{device}/vendor": "0x10de", f"{device}/class": "0x030200", f"{device}/numa_node": str(node)}
            files[f"dev/nvidia{number}"] = ""
        return files

    def node_cpus(self, node: int) -> set[int]:
        """Return the online CPUs of a node."""
        cores = self.nodes * self.cores_per_node
        return {
            cpu
            for cpu in range(cores * self.threads)
            if cpu % cores // self.cores_per_node == node and cpu not in self.offline
        }


P3_16XLARGE = Built(nodes=2, cores_per_node=16, threads=2, gpu_nodes=(0, 0, 0, 0, 1, 1, 1, 1))
C5_18XLARGE = Built(nodes=2, cores_per_node=18, threads=2)


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Write a tree and return its root."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root
