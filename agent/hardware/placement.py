"""Choose the cores, memory and GPU of each rank of a host. Pure; `agent.hardware.binding` applies the choice."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

from agent.hardware.cpulist import show_list
from agent.hardware.gpus import PciGpu
from agent.hardware.topology import Topology

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
    """The part of its host that a rank gets."""

    cpus: tuple[int, ...]
    """Logical CPUs, in order; whole cores unless there are more ranks than cores."""
    cores: int
    """Number of physical cores, less where a quota grants less: the basis for the number of threads."""
    node: int | None
    """Memory node to take memory from first; None: the kernel's own choice."""
    gpu: PciGpu | None = None
    exclusive: bool = True
    """Whether no other rank of this host computes on these cores."""

    def __str__(self) -> str:
        where = "" if self.node is None else f", memory node {self.node}"
        gpu = f", GPU {self.gpu.index} ({self.gpu.address})" if self.gpu else ""
        return f"CPUs {show_list(self.cpus)}{'' if self.exclusive else ' shared with other ranks'}{where}{gpu}"


def place(topology: Topology, local_rank: int, local_size: int) -> Placement:
    """Return the placement of a rank.

    Cores are assigned in the order of memory nodes. Each rank gets consecutive whole cores with all their hardware
    threads, and the numbers differ by one core at most: no core has two ranks, none is left out, and no rank spans two
    nodes where nodes and ranks divide evenly. With more ranks than cores each rank gets a hardware thread of its own,
    as long as there are enough, and neighbours share a core; beyond that no rank is bound.

    A quota of CPU time does not reduce the cores, since other containers with a quota would choose the same ones; it
    limits the number of threads.
    """
    cores = topology.cores
    if local_size <= len(cores):
        own = _share(cores, local_rank, local_size)
        threads, exclusive = len(own), True
    elif local_size <= len(topology.cpus):
        thread = _share([(core, cpu) for core in cores for cpu in core.cpus], local_rank, local_size)
        own = tuple(dataclasses.replace(core, cpus=(cpu,)) for core, cpu in thread)
        threads, exclusive = len({core for core, _ in thread}), False
    else:
        own, threads, exclusive = cores, 1, False
    nodes = {core.node for core in own}
    node = nodes.pop() if len(nodes) == 1 and len(topology.nodes) > 1 else None
    return Placement(
        cpus=tuple(sorted(cpu for core in own for cpu in core.cpus)),
        cores=max(1, min(threads, int(topology.quota_cpus // local_size)) if bounded(topology) else threads),
        node=node,
        gpu=gpus(topology, local_size)[local_rank],
        exclusive=exclusive,
    )


def with_gpus_by_rank(topology: Topology, local_rank: int, local_size: int) -> Placement:
    """Return the placement of a rank whose program takes the GPU with its local rank's number by itself.

    The shares of the cores are those of `place`; a rank gets the one that is nearest to its GPU. With fewer GPUs than
    ranks each has the share of its own number.
    """
    if len(topology.gpus) < local_size:
        return place(topology, local_rank, local_size)
    numbered = dataclasses.replace(topology, gpus=topology.gpus[:local_size])
    near = [gpu.index if gpu else None for gpu in gpus(numbered, local_size)]
    return place(numbered, near.index(topology.gpus[local_rank].index), local_size)


def bounded(topology: Topology) -> bool:
    """Return whether a quota grants less time than the cores have."""
    return topology.quota_cpus < len(topology.cores)


def gpus(topology: Topology, local_size: int) -> tuple[PciGpu | None, ...]:
    """Return the GPU of each rank: the first free one on its own memory node, else one that no nearer rank has taken.

    Further ranks share the GPUs in the same order.
    """
    given: dict[int, PciGpu] = {}
    ranks = range(local_size)
    for first in range(0, local_size, max(1, len(topology.gpus))):
        turn = ranks[first : first + len(topology.gpus)]
        free = list(topology.gpus)
        for near in (True, False):
            for rank in turn:
                nodes = _nodes(topology, rank, local_size)
                chosen = next((gpu for gpu in free if gpu.node in nodes or not near), None)
                if chosen and rank not in given:
                    free.remove(chosen)
                    given[rank] = chosen
    return tuple(given.get(rank) for rank in ranks)


def _nodes(topology: Topology, local_rank: int, local_size: int) -> frozenset[int]:
    """Return the memory nodes of a rank's cores."""
    if local_size > len(topology.cores):
        return frozenset(core.node for core in topology.cores)
    return frozenset(core.node for core in _share(topology.cores, local_rank, local_size))


def _share(items: Sequence[T], rank: int, ranks: int) -> tuple[T, ...]:
    """Return a rank's consecutive items; the shares are disjoint, cover all, and differ by one item at most."""
    return tuple(items[rank * len(items) // ranks : (rank + 1) * len(items) // ranks])
