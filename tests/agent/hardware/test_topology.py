from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.hardware.topology import MACHINES_OWN, PROCESSES, Core, TopologyError, read_topology
from tests.agent.hardware.machines import C5_18XLARGE, C7G_16XLARGE, P3_16XLARGE, RECORDED, Built, write


def test_the_recorded_machine_has_two_cores_on_one_node(tmp_path: Path) -> None:
    topology = read_topology(write(tmp_path, RECORDED), {0, 1})
    assert topology.cores == (Core(node=0, socket=0, cpus=(0,)), Core(node=0, socket=0, cpus=(1,)))
    assert str(topology) == "1 socket, 1 memory node, 2 cores, 2 CPUs"


def test_eight_gpus_hang_on_two_sockets(tmp_path: Path) -> None:
    topology = read_topology(write(tmp_path, P3_16XLARGE.files()))
    assert (topology.sockets, topology.nodes, len(topology.cores), len(topology.cpus)) == (2, (0, 1), 32, 64)
    assert topology.cores[0] == Core(node=0, socket=0, cpus=(0, 32))
    assert topology.cores[16] == Core(node=1, socket=1, cpus=(16, 48))
    assert [(gpu.index, gpu.address[-4:], gpu.node) for gpu in topology.gpus][3:5] == [(3, "1a.0", 0), (4, "1b.0", 1)]
    assert str(topology).endswith(f"64 CPUs, {len(topology.gpus)} GPUs")


def test_two_sockets_with_hardware_threads_and_graviton_without_are_told_apart(tmp_path: Path) -> None:
    c5 = read_topology(write(tmp_path / "c5", C5_18XLARGE.files()))
    graviton = read_topology(write(tmp_path / "c7g", C7G_16XLARGE.files()))
    assert str(c5) == "2 sockets, 2 memory nodes, 36 cores, 72 CPUs"
    assert str(graviton) == "1 socket, 1 memory node, 64 cores, 64 CPUs"


def test_cpus_that_are_off_or_not_allowed_are_no_cores(tmp_path: Path) -> None:
    machine = Built(nodes=1, cores_per_node=4, threads=2, offline=frozenset({1, 5, 6}))
    topology = read_topology(write(tmp_path, machine.files()), {0, 2, 3, 7})
    assert [core.cpus for core in topology.cores] == [(0,), (2,), (3, 7)]
    assert topology.offline == (1, 5, 6)
    assert str(topology).endswith("4 CPUs, 3 CPUs off")


def test_a_gpu_without_a_node_is_placed_by_the_cpus_beside_it(tmp_path: Path) -> None:
    files = Built(nodes=2, cores_per_node=2, gpu_nodes=(-1, -1)).files()
    files["sys/bus/pci/devices/0000:00:17.0/local_cpulist"] = "2-3"
    files["sys/bus/pci/devices/0000:00:18.0/local_cpulist"] = "0-3"
    assert [gpu.node for gpu in read_topology(write(tmp_path, files)).gpus] == [1, None]


def test_the_gpu_of_a_virtual_machine_hangs_on_its_only_node(tmp_path: Path) -> None:
    """As recorded on a machine with one H200, 16 cores and one memory node: the bus does not tell the GPU's."""
    device = "sys/bus/pci/devices/0000:00:06.0"
    files = Built(nodes=1, cores_per_node=16).files() | {
        f"{device}/vendor": "0x10de",
        f"{device}/class": "0x030200",
        f"{device}/numa_node": "-1",
        f"{device}/local_cpulist": "0-15",
        "dev/nvidia0": "",
    }
    topology = read_topology(write(tmp_path, files))
    assert [(gpu.index, gpu.address, gpu.node) for gpu in topology.gpus] == [(0, "0000:00:06.0", 0)]
    assert str(topology) == "1 socket, 1 memory node, 16 cores, 16 CPUs, 1 GPU"


def test_a_container_with_fewer_gpus_than_the_bus_gets_none_chosen(tmp_path: Path) -> None:
    files = P3_16XLARGE.files()
    del files["dev/nvidia7"]
    topology = read_topology(write(tmp_path, files))
    assert (topology.gpus, topology.gpus_on_bus) == ((), 8)


def test_other_display_controllers_are_no_gpus(tmp_path: Path) -> None:
    device = "sys/bus/pci/devices/0000:00:02.0"
    audio = "sys/bus/pci/devices/0000:01:00.1"
    files = {f"{device}/vendor": "0x8086", f"{device}/class": "0x030000"}
    files |= {f"{audio}/vendor": "0x10de", f"{audio}/class": "0x040300"}
    assert read_topology(write(tmp_path, RECORDED | files)).gpus_on_bus == 0


def test_what_a_kernel_leaves_out_counts_as_one(tmp_path: Path) -> None:
    files = {"sys/devices/system/cpu/online": "0-2", "sys/devices/system/cpu/cpu1/topology/physical_package_id": "-1"}
    topology = read_topology(write(tmp_path, files))
    assert str(topology) == "1 socket, 1 memory node, 3 cores, 3 CPUs"


def test_siblings_that_contradict_each_other_never_put_a_cpu_into_two_cores(tmp_path: Path) -> None:
    files = RECORDED | {"sys/devices/system/cpu/cpu0/topology/core_cpus_list": "0-1"}
    assert read_topology(write(tmp_path, files)).cpus == (0, 1)


def test_a_cpuset_and_a_quota_narrow_the_machine(tmp_path: Path) -> None:
    files = C5_18XLARGE.files() | {
        "proc/self/cgroup": "0::/",
        "sys/fs/cgroup/cpuset.cpus.effective": "0-3,36-39",
        "sys/fs/cgroup/cpu.max": "250000 100000",
    }
    assert str(read_topology(write(tmp_path, files))).endswith("4 cores, 8 CPUs, quota 2.5 CPUs")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("sys/devices/system/cpu/online", "0-x", "not a list of CPUs"),
        ("sys/devices/system/cpu/cpu1/topology/physical_package_id", "first", "not a number"),
        ("sys/devices/system/node/node0/cpulist", "?", "not a list of CPUs"),
    ],
)
def test_a_malformed_file_is_named_with_the_way_out(tmp_path: Path, name: str, text: str, said: str) -> None:
    root = write(tmp_path, RECORDED | {name: text})
    with pytest.raises(TopologyError, match=said) as caught:
        read_topology(root)
    assert caught.value.path == root / name
    assert "--placement none" in str(caught.value)


def test_no_linux_and_no_cpu_left_are_errors(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="not the files of a Linux machine"):
        read_topology(tmp_path)
    with pytest.raises(TopologyError, match="none of it may be used"):
        read_topology(write(tmp_path, RECORDED), {5})


def test_this_machine_is_read() -> None:
    topology = read_topology(Path("/"), os.sched_getaffinity(0))
    assert set(topology.cpus) <= os.sched_getaffinity(0)
    assert topology.cores


def test_a_container_with_all_cpus_shares_them_and_the_machine_itself_or_a_cpuset_does_not(tmp_path: Path) -> None:
    root = write(tmp_path, RECORDED)
    assert not read_topology(root).shared
    (root / PROCESSES).parent.mkdir(parents=True)
    (root / PROCESSES).symlink_to("pid:[4026532170]")
    assert read_topology(root).shared
    assert not read_topology(root, {0}).shared
    (root / PROCESSES).unlink()
    (root / PROCESSES).symlink_to(MACHINES_OWN)
    assert not read_topology(root).shared
