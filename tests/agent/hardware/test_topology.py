"""The topology of a machine: cores, memory nodes, GPUs, cgroup limits, and lists of CPUs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.hardware.topology import (
    LARGEST,
    MACHINES_OWN,
    PROCESSES,
    Core,
    TopologyError,
    parse_cpu_max,
    parse_list,
    read_quota,
    read_topology,
    show_list,
)
from tests.agent.hardware.machines import C5_18XLARGE, P3_16XLARGE, RECORDED, Built, write


def test_recorded_machine_has_two_cores_on_one_node(tmp_path: Path) -> None:
    topology = read_topology(write(tmp_path, RECORDED), {0, 1})
    assert topology.cores == (Core(node=0, socket=0, cpus=(0,)), Core(node=0, socket=0, cpus=(1,)))
    assert str(topology) == "1 socket, 1 memory node, 2 cores, 2 CPUs"


def test_eight_gpus_are_on_two_sockets(tmp_path: Path) -> None:
    topology = read_topology(write(tmp_path, P3_16XLARGE.files()))
    assert (topology.sockets, topology.nodes, len(topology.cores), len(topology.cpus)) == (2, (0, 1), 32, 64)
    assert topology.cores[0] == Core(node=0, socket=0, cpus=(0, 32))
    assert topology.cores[16] == Core(node=1, socket=1, cpus=(16, 48))
    assert [(gpu.index, gpu.address[-4:], gpu.node) for gpu in topology.gpus][3:5] == [(3, "1a.0", 0), (4, "1b.0", 1)]
    assert str(topology).endswith(f"64 CPUs, {len(topology.gpus)} GPUs")


def test_cpus_that_are_off_or_not_allowed_are_no_cores(tmp_path: Path) -> None:
    machine = Built(nodes=1, cores_per_node=4, threads=2, offline=frozenset({1, 5, 6}))
    topology = read_topology(write(tmp_path, machine.files()), {0, 2, 3, 7})
    assert [core.cpus for core in topology.cores] == [(0,), (2,), (3, 7)]
    assert topology.offline == (1, 5, 6)
    assert str(topology).endswith("4 CPUs, 3 CPUs off")


def test_gpu_without_a_node_is_placed_by_the_cpus_beside_it(tmp_path: Path) -> None:
    files = Built(nodes=2, cores_per_node=2, gpu_nodes=(-1, -1)).files()
    files["sys/bus/pci/devices/0000:00:17.0/local_cpulist"] = "2-3"
    files["sys/bus/pci/devices/0000:00:18.0/local_cpulist"] = "0-3"
    assert [gpu.node for gpu in read_topology(write(tmp_path, files)).gpus] == [1, None]


def test_container_with_fewer_gpus_than_the_bus_gets_none_chosen(tmp_path: Path) -> None:
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


def test_values_missing_in_kernel_count_as_one(tmp_path: Path) -> None:
    files = {"sys/devices/system/cpu/online": "0-2", "sys/devices/system/cpu/cpu1/topology/physical_package_id": "-1"}
    topology = read_topology(write(tmp_path, files))
    assert str(topology) == "1 socket, 1 memory node, 3 cores, 3 CPUs"


def test_siblings_that_contradict_each_other_never_put_a_cpu_into_two_cores(tmp_path: Path) -> None:
    files = RECORDED | {"sys/devices/system/cpu/cpu0/topology/core_cpus_list": "0-1"}
    assert read_topology(write(tmp_path, files)).cpus == (0, 1)


def test_affinity_and_a_quota_narrow_the_machine(tmp_path: Path) -> None:
    files = C5_18XLARGE.files() | {
        "proc/self/cgroup": "0::/",
        "sys/fs/cgroup/cpu.max": "250000 100000",
    }
    allowed = {*range(4), *range(36, 40)}
    assert str(read_topology(write(tmp_path, files), allowed)).endswith("4 cores, 8 CPUs, quota 2.5 CPUs")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("sys/devices/system/cpu/online", "0-x", "not a list of CPUs"),
        ("sys/devices/system/cpu/cpu1/topology/physical_package_id", "first", "not a number"),
        ("sys/devices/system/node/node0/cpulist", "?", "not a list of CPUs"),
    ],
)
def test_malformed_file_is_reported_with_fix(tmp_path: Path, name: str, text: str, said: str) -> None:
    root = write(tmp_path, RECORDED | {name: text})
    with pytest.raises(TopologyError, match=said) as caught:
        read_topology(root)
    assert caught.value.path == root / name
    assert "--placement none" in str(caught.value)


def test_missing_linux_or_cpus_are_errors(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="can only be read on Linux"):
        read_topology(tmp_path)
    with pytest.raises(TopologyError, match="may use none of these CPUs"):
        read_topology(write(tmp_path, RECORDED), {5})


def test_only_container_with_all_cpus_shares_them(tmp_path: Path) -> None:
    root = write(tmp_path, RECORDED)
    assert not read_topology(root).shared
    (root / PROCESSES).parent.mkdir(parents=True)
    (root / PROCESSES).symlink_to("pid:[4026532170]")
    assert read_topology(root).shared
    assert not read_topology(root, {0}).shared
    (root / PROCESSES).unlink()
    (root / PROCESSES).symlink_to(MACHINES_OWN)
    assert not read_topology(root).shared


def test_tightest_limit_of_version_2_groups_counts(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/system.slice/train.service",
        "sys/fs/cgroup/cpu.max": "400000 100000",
        "sys/fs/cgroup/system.slice/cpu.max": "350000 100000",
        "sys/fs/cgroup/system.slice/train.service/cpu.max": "max 100000",
    }
    assert read_quota(write(tmp_path, files)) == 3.5


@pytest.mark.parametrize("mount", ["cpu,cpuacct", "cpu"])
def test_version_1_is_read_under_the_names_of_its_controllers(tmp_path: Path, mount: str) -> None:
    group = f"sys/fs/cgroup/{mount}/batch"
    files = {
        "proc/self/cgroup": "4:cpu,cpuacct:/batch\n3:cpuset:/batch",
        f"{group}/cpu.cfs_quota_us": "150000",
        f"{group}/cpu.cfs_period_us": "100000",
    }
    assert read_quota(write(tmp_path, files)) == 1.5


def test_missing_and_damaged_cgroups_set_no_limit(tmp_path: Path) -> None:
    assert read_quota(tmp_path / "none") == math.inf
    files = {
        "proc/self/cgroup": "nonsense\n0::relative\n0::/a/../..\n1:cpu:/",
        "sys/fs/cgroup/cpu.max": "9 9",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "soon",
    }
    assert read_quota(write(tmp_path / "damaged", files)) == math.inf


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("max 100000", math.inf), ("-1 100000", math.inf), ("", math.inf), ("0 0", math.inf), ("50000 100000", 0.5)],
)
def test_quota_is_time_over_period(text: str, cpus: float) -> None:
    assert parse_cpu_max(text) == cpus


@given(st.sets(st.integers(0, LARGEST - 1), max_size=50))
def test_cpu_lists_are_read_back(numbers: set[int]) -> None:
    assert parse_list(show_list(numbers)) == numbers


@pytest.mark.parametrize("text", ["0-", "-1", "3-1", "a", "0,,1", "0-99999999", "0 1", "٣"])
def test_invalid_cpu_lists_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is neither a number nor a range"):
        parse_list(text)


def test_largest_cpu_number_is_accepted() -> None:
    assert parse_list("0,65535") == {0, 65535}
    with pytest.raises(ValueError, match="'65536' is neither"):
        parse_list("0,65536")
    assert parse_list(" 4-4,1\n") == {1, 4}
    assert show_list([3, 0, 1, 2, 8, 11, 10]) == "0-3,8,10-11"
