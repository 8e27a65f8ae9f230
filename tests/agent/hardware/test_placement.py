"""The placement of a rank: its cores, memory, GPU and threads, and how this process is bound to them."""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import json
import math
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.hardware.gpus import PciGpu
from agent.hardware.placement import (
    Placement,
    bind,
    gpu_variables,
    has_tight_quota,
    place,
    place_program,
    place_rank,
    prefer_node,
    thread_variables,
    with_gpus_by_rank,
)
from agent.hardware.topology import MACHINES_OWN, PROCESSES, Core, Topology, read_topology
from tests.agent.hardware.machines import P3_16XLARGE, RECORDED, write


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Draw machines with uneven nodes, cores with a missing thread, GPUs anywhere, and quotas."""
    sizes = draw(st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any))
    cores, cpu = [], 0
    for node, size in enumerate(sizes):
        for _ in range(size):
            threads = draw(st.integers(1, 2))
            cores.append(Core(node=node, socket=node // 2, cpus=tuple(range(cpu, cpu + threads))))
            cpu += threads
    nodes = draw(st.lists(st.one_of(st.none(), st.integers(0, len(sizes) - 1)), max_size=8))
    gpus = tuple(PciGpu(index=index, address=f"{index}", node=node) for index, node in enumerate(nodes))
    quota = draw(st.one_of(st.just(math.inf), st.floats(0.5, 40)))
    return Topology(cores=tuple(cores), nodes=tuple(range(len(sizes))), gpus=gpus, quota_cpus=quota)


def place_all(topology: Topology, ranks: int) -> list[Placement]:
    return [place(topology, rank, ranks) for rank in range(ranks)]


@settings(max_examples=40)
@given(topology=topologies(), data=st.data())
def test_ranks_share_whole_cores_without_loss_or_overlap_and_differ_by_one_at_most(
    topology: Topology, data: st.DataObject
) -> None:
    ranks = data.draw(st.integers(1, len(topology.cores)))
    placements = place_all(topology, ranks)
    dealt = [cpu for placement in placements for cpu in placement.cpus]
    assert sorted(dealt) == list(topology.cpus)
    whole = [sum(set(core.cpus) <= set(placement.cpus) for core in topology.cores) for placement in placements]
    assert sum(whole) == len(topology.cores)
    assert max(whole) - min(whole) <= 1
    assert all(placement.exclusive for placement in placements)


@settings(max_examples=40)
@given(topology=topologies(), ranks=st.integers(1, 80))
def test_no_rank_gets_more_than_allowed_cpus(topology: Topology, ranks: int) -> None:
    for placement in place_all(topology, ranks):
        assert placement.cpus
        assert set(placement.cpus) <= set(topology.cpus)
        assert 1 <= placement.cores <= max(1, len(topology.cores))
        # Unless a quota limits them, ranks get whole cores, and one rank may have one core more than another.
        assert not has_tight_quota(topology) or placement.cores == 1 or placement.cores * ranks <= topology.quota_cpus


@given(nodes=st.integers(1, 4), cores=st.integers(1, 12), per_node=st.integers(1, 12))
def test_ranks_do_not_span_numa_nodes_if_they_divide_evenly(nodes: int, cores: int, per_node: int) -> None:
    machine = tuple(Core(node=n, socket=n, cpus=(n * cores + c,)) for n in range(nodes) for c in range(cores))
    topology = Topology(cores=machine, nodes=tuple(range(nodes)))
    ranks = nodes * min(per_node, cores)
    for placement in place_all(topology, ranks):
        assert len({core.node for core in machine if core.cpus[0] in placement.cpus}) == 1
        assert (placement.node is None) == (nodes == 1)


@settings(max_examples=40)
@given(topology=topologies(), data=st.data())
def test_extra_ranks_get_hardware_threads_or_stay_unbound(topology: Topology, data: st.DataObject) -> None:
    ranks = data.draw(st.integers(len(topology.cores) + 1, len(topology.cpus) + 20))
    placements = place_all(topology, ranks)
    assert not any(placement.exclusive for placement in placements)
    if ranks <= len(topology.cpus):
        assert sorted(cpu for placement in placements for cpu in placement.cpus) == list(topology.cpus)
    else:
        assert all(placement.cpus == topology.cpus and placement.cores == 1 for placement in placements)


@settings(max_examples=40)
@given(topology=topologies(), ranks=st.integers(1, 8))
def test_gpus_are_shared_only_if_too_few(topology: Topology, ranks: int) -> None:
    given_gpus = [placement.gpu for placement in place_all(topology, ranks)]
    if not topology.gpus:
        assert given_gpus == [None] * ranks
    elif ranks <= len(topology.gpus):
        assert len({gpu.index for gpu in given_gpus if gpu}) == ranks
    else:
        counts = [sum(found == gpu for found in given_gpus) for gpu in topology.gpus]
        assert max(counts) - min(counts) <= 1


def test_each_of_eight_ranks_is_near_its_gpu(tmp_path: Path) -> None:
    topology = read_topology(write(tmp_path, P3_16XLARGE.files()))
    placements = place_all(topology, 8)
    assert [str(placement) for placement in placements[3:5]] == [
        "CPUs 12-15,44-47, memory node 0, GPU 3 (0000:00:1a.0)",
        "CPUs 16-19,48-51, memory node 1, GPU 4 (0000:00:1b.0)",
    ]
    assert [placement.gpu.index for placement in placements if placement.gpu] == list(range(8))


@pytest.mark.parametrize(("quota", "cores"), [(math.inf, 4), (7.9, 3), (2.0, 1), (0.5, 1), (8.0, 4)])
def test_quota_limits_threads_but_not_cores(quota: float, cores: int) -> None:
    machine = tuple(Core(node=0, socket=0, cpus=(cpu,)) for cpu in range(8))
    placement = place(Topology(cores=machine, nodes=(0,), quota_cpus=quota), 0, 2)
    assert placement.cpus == (0, 1, 2, 3)
    assert placement.cores == cores


@settings(max_examples=40)
@given(topology=topologies(), data=st.data())
def test_gpu_follows_the_local_rank_and_the_cores_are_shared_as_usual(topology: Topology, data: st.DataObject) -> None:
    ranks = data.draw(st.integers(1, len(topology.cores)))
    found = [with_gpus_by_rank(topology, rank, ranks) for rank in range(ranks)]
    assert sorted(placement.cpus for placement in found) == sorted(each.cpus for each in place_all(topology, ranks))
    if ranks <= len(topology.gpus):
        assert [placement.gpu.index if placement.gpu else None for placement in found] == list(range(ranks))


ANOTHER = "pid:[4026532170]"


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[Placement]:
    """Do not bind this process; record the placements instead."""
    placements: list[Placement] = []

    def bind(placement: Placement) -> tuple[str, ...]:
        placements.append(placement)
        return ("refused",)

    monkeypatch.setattr("agent.hardware.placement.bind", bind)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    return placements


def in_namespace(root: Path, files: dict[str, str], namespace: str) -> Path:
    (write(root, files) / PROCESSES).parent.mkdir(parents=True)
    (root / PROCESSES).symlink_to(namespace)
    return root


def test_single_recipe_rank_is_bound_and_failures_are_recorded(tmp_path: Path, bound: list[Placement]) -> None:
    found = place_rank(0, 1, write(tmp_path, RECORDED))
    assert [placement.cpus for placement in bound] == [(0, 1)]
    assert (found.notes, str(found)) == (("refused",), "1 socket, 1 memory node, 2 cores, 2 CPUs: rank on CPUs 0-1")


def test_program_ranks_are_bound_if_each_has_a_core(tmp_path: Path, bound: list[Placement]) -> None:
    found = place_program(1, 2, in_namespace(tmp_path, RECORDED, MACHINES_OWN))
    assert [placement.cpus for placement in bound] == [(1,)]
    assert (found.placement.cores, found.notes) == (1, ("refused",))


@pytest.mark.parametrize(
    ("ranks", "namespace", "reason", "cores"),
    [
        (1, MACHINES_OWN, "the host's only rank", 2),
        (3, MACHINES_OWN, "3 ranks share 2 cores", 1),
        (2, ANOTHER, "other containers may compute on these cores", 1),
    ],
)
def test_program_ranks_are_not_bound_to_cores_others_may_need(
    tmp_path: Path, bound: list[Placement], ranks: int, namespace: str, reason: str, cores: int
) -> None:
    found = place_program(0, ranks, in_namespace(tmp_path, RECORDED, namespace))
    assert bound == []
    assert found.notes == (f"not bound: {reason}",)
    assert (found.placement.cpus, found.placement.cores, found.placement.node) == ((0, 1), cores, None)
    assert found.placement.exclusive == (ranks == 1)


def test_container_is_bound_to_its_own_cores(
    tmp_path: Path, bound: list[Placement], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3})
    place_program(0, 2, in_namespace(tmp_path, P3_16XLARGE.files(), ANOTHER))
    assert [placement.cpus for placement in bound] == [(0, 1)]


def test_unreadable_machine_is_reported(tmp_path: Path, bound: list[Placement]) -> None:
    root = write(tmp_path, RECORDED | {"sys/devices/system/cpu/online": "?"})
    for found in (place_rank(0, 2, root), place_program(0, 2, root)):
        assert found.notes[0].startswith("not placed: ")
        assert (found.machine, found.placement.cores) == ("64 CPUs", 32)
    assert bound == []


ROOT = Path(__file__).parents[3]
PROGRAM = """
import json, os, threading
from pathlib import Path
from agent.hardware.placement import Placement, bind
leave, found = threading.Event(), {}
thread = threading.Thread(target=leave.wait)
thread.start()
cpu = min(os.sched_getaffinity(0))
found["refused"] = bind(Placement(cpus=(cpu,), cores=1, node=0))
found["cpu"] = cpu
found["main"] = sorted(os.sched_getaffinity(0))
found["elder"] = sorted(os.sched_getaffinity(thread.native_id))
later = threading.Thread(target=lambda: found.update(younger=sorted(os.sched_getaffinity(0))))
later.start()
later.join()
leave.set()
maps = Path("/proc/self/numa_maps")
found["policy"] = maps.read_text().split()[1] if maps.exists() else None
print(json.dumps(found))
"""


def test_threads_before_and_after_are_bound_and_memory_is_taken_from_the_node() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["main"] == found["elder"] == found["younger"] == [found["cpu"]]
    if found["refused"]:
        assert found["refused"][0].startswith("cannot bind to memory node 0: ")
    else:
        assert found["policy"] in (None, "prefer:0")


def test_sandbox_without_binding_causes_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(thread: int, cpus: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", forbid)
    monkeypatch.setattr("agent.hardware.placement.prefer_node", lambda node: "Operation not permitted")
    assert bind(Placement(cpus=(0,), cores=1, node=1)) == (
        "cannot bind to the CPUs: Operation not permitted",
        "cannot bind to memory node 1: Operation not permitted",
    )


def test_missing_memory_node_and_an_unknown_processor_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = prefer_node(1023)  # no machine that runs this test has so many nodes
    assert reason in (os.strerror(errno.EINVAL), os.strerror(errno.EPERM), os.strerror(errno.ENOSYS))
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert prefer_node(0) == "the number of the system call set_mempolicy is unknown on riscv64"


@pytest.mark.parametrize(
    ("machine", "number", "node", "mask", "bits"),
    [("x86_64", 238, 63, [1 << 63], 65), ("aarch64", 237, 64, [0, 1], 129)],
)
def test_memory_policy_system_call_uses_the_node_mask(
    machine: str, number: int, node: int, mask: list[int], bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Libc:
        def __init__(self, name: str | None, *, use_errno: bool) -> None:
            assert name is None and use_errno

        def syscall(self, number: Any, policy: Any, mask: Any, bits: Any) -> int:
            asked.append((number.value, policy.value, list(mask), bits.value))
            return 0

    asked: list[tuple[int, int, list[int], int]] = []
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(ctypes, "CDLL", Libc)
    assert prefer_node(node) is None
    assert asked == [(number, 1, mask, bits)]  # 1: MPOL_PREFERRED


def test_cuda_sees_one_gpu_unless_user_chose() -> None:
    alone = Placement(cpus=(0,), cores=1, node=None)
    beside = dataclasses.replace(alone, gpu=PciGpu(index=3, address="0000:00:1a.0", node=0))
    assert gpu_variables(beside, {}) == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "3"}
    assert gpu_variables(beside, {"CUDA_VISIBLE_DEVICES": "1,2"}) == {}
    assert gpu_variables(alone, {}) == {}


@pytest.mark.parametrize(("bits", "on"), [(512, "1"), (256, "1"), (128, None)])
def test_onednn_is_enabled_with_wide_vectors(bits: int, on: str | None) -> None:
    assert thread_variables(4, bits).get("TF_ENABLE_ONEDNN_OPTS") == on


def test_openmp_threads_match_intra_op_threads() -> None:
    one, four = thread_variables(1, 512), thread_variables(4, 512)
    assert (one["OMP_NUM_THREADS"], four["OMP_NUM_THREADS"]) == ("1", "4")
    assert one["TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD"] == "1"
    assert "TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD" not in four
