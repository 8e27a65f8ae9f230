from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.hardware.gpus import PciGpu
from agent.hardware.placement import Placement, bounded, place, with_gpus_by_rank
from agent.hardware.topology import Core, Topology, read_topology
from tests.agent.hardware.machines import C5_18XLARGE, P3_16XLARGE, Built, write


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Draw machines with uneven nodes, cores that lost a thread, GPUs anywhere, and quotas."""
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


@given(topology=topologies(), ranks=st.integers(1, 80))
def test_nobody_gets_more_than_the_machine_grants(topology: Topology, ranks: int) -> None:
    for placement in place_all(topology, ranks):
        assert placement.cpus
        assert set(placement.cpus) <= set(topology.cpus)
        assert 1 <= placement.cores <= max(1, len(topology.cores))
        # Without a quota that narrows, cores are dealt whole, and one rank may have one more than another.
        assert not bounded(topology) or placement.cores == 1 or placement.cores * ranks <= topology.quota_cpus


@given(nodes=st.integers(1, 4), cores=st.integers(1, 12), per_node=st.integers(1, 12))
def test_no_rank_spans_nodes_where_they_divide_evenly(nodes: int, cores: int, per_node: int) -> None:
    machine = tuple(Core(node=n, socket=n, cpus=(n * cores + c,)) for n in range(nodes) for c in range(cores))
    topology = Topology(cores=machine, nodes=tuple(range(nodes)))
    ranks = nodes * min(per_node, cores)
    for placement in place_all(topology, ranks):
        assert len({core.node for core in machine if core.cpus[0] in placement.cpus}) == 1
        assert (placement.node is None) == (nodes == 1)


@given(topology=topologies(), data=st.data())
def test_more_ranks_than_cores_get_a_hardware_thread_each_and_beyond_that_none_is_bound(
    topology: Topology, data: st.DataObject
) -> None:
    ranks = data.draw(st.integers(len(topology.cores) + 1, len(topology.cpus) + 20))
    placements = place_all(topology, ranks)
    assert not any(placement.exclusive for placement in placements)
    if ranks <= len(topology.cpus):
        assert sorted(cpu for placement in placements for cpu in placement.cpus) == list(topology.cpus)
    else:
        assert all(placement.cpus == topology.cpus and placement.cores == 1 for placement in placements)


@given(topology=topologies(), ranks=st.integers(1, 8))
def test_gpus_are_shared_only_when_there_are_too_few(topology: Topology, ranks: int) -> None:
    given_gpus = [placement.gpu for placement in place_all(topology, ranks)]
    if not topology.gpus:
        assert given_gpus == [None] * ranks
    elif ranks <= len(topology.gpus):
        assert len({gpu.index for gpu in given_gpus if gpu}) == ranks
    else:
        counts = [sum(found == gpu for found in given_gpus) for gpu in topology.gpus]
        assert max(counts) - min(counts) <= 1


def test_each_of_eight_ranks_sits_beside_its_gpu(tmp_path: Path) -> None:
    topology = read_topology(write(tmp_path, P3_16XLARGE.files()))
    placements = place_all(topology, 8)
    assert [str(placement) for placement in placements[3:5]] == [
        "CPUs 12-15,44-47, memory node 0, GPU 3 (0000:00:1a.0)",
        "CPUs 16-19,48-51, memory node 1, GPU 4 (0000:00:1b.0)",
    ]
    assert [placement.gpu.index for placement in placements if placement.gpu] == list(range(8))


def test_ranks_take_the_gpus_of_their_own_node_whatever_the_order_on_the_bus(tmp_path: Path) -> None:
    machine = Built(nodes=2, cores_per_node=4, gpu_nodes=(1, 1, 0, 0))
    placements = place_all(read_topology(write(tmp_path, machine.files())), 4)
    assert [placement.gpu.index for placement in placements if placement.gpu] == [2, 3, 0, 1]


def test_one_rank_has_the_whole_machine_and_memory_from_everywhere(tmp_path: Path) -> None:
    placement = place(read_topology(write(tmp_path, C5_18XLARGE.files())), 0, 1)
    assert (len(placement.cpus), placement.cores, placement.node) == (72, 36, None)


@pytest.mark.parametrize(("quota", "cores"), [(math.inf, 4), (7.9, 3), (2.0, 1), (0.5, 1), (8.0, 4)])
def test_a_quota_bounds_the_threads_and_not_the_cores(quota: float, cores: int) -> None:
    machine = tuple(Core(node=0, socket=0, cpus=(cpu,)) for cpu in range(8))
    placement = place(Topology(cores=machine, nodes=(0,), quota_cpus=quota), 0, 2)
    assert placement.cpus == (0, 1, 2, 3)
    assert placement.cores == cores


@given(topology=topologies(), data=st.data())
def test_programs_that_take_the_gpu_of_their_local_rank_share_the_cores_as_before_each_with_that_gpu(
    topology: Topology, data: st.DataObject
) -> None:
    ranks = data.draw(st.integers(1, len(topology.cores)))
    found = [with_gpus_by_rank(topology, rank, ranks) for rank in range(ranks)]
    assert sorted(placement.cpus for placement in found) == sorted(each.cpus for each in place_all(topology, ranks))
    if ranks <= len(topology.gpus):
        assert [placement.gpu.index if placement.gpu else None for placement in found] == list(range(ranks))


def test_a_rank_whose_gpu_hangs_on_the_other_node_gets_cores_there() -> None:
    cores = tuple(Core(node=node, socket=node, cpus=(node,)) for node in (0, 1))
    gpus = tuple(PciGpu(index=index, address=f"{index}", node=1 - index) for index in (0, 1))
    topology = Topology(cores=cores, nodes=(0, 1), gpus=gpus)
    assert [with_gpus_by_rank(topology, rank, 2).cpus for rank in (0, 1)] == [(1,), (0,)]
