"""Place this process as one of its host's ranks: choose its cores, memory, GPU and threads, and bind it.

Each rank of a recipe is bound and shown its GPU alone (`place_rank`). A program of the user's own is placed more
carefully (`place_program`): it may choose a GPU by itself, and its ranks may wait by spinning, which takes the time of
others on the same cores. Standard library only; docs/tuning.md has the reasons.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from agent.hardware.gpus import PciGpu
from agent.hardware.topology import Topology, TopologyError, read_topology, show_list

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


THREADS: Final = Path("/proc/self/task")
MPOL_PREFERRED: Final = 1
"""Take memory from this node first, and from others when it is full, so that it never ends a run."""
SET_MEMPOLICY: Final = {"x86_64": 238, "aarch64": 237}
"""Numbers of the system call: the C library has no function for it, and libnuma is seldom installed."""
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER: Final = "CUDA_DEVICE_ORDER"


def bind(placement: Placement) -> tuple[str, ...]:
    """Bind all threads of this process to the CPUs, and its memory to the node; return the refusals.

    A sandbox may forbid either; the run then continues, only slower.
    """
    refused = []
    try:
        for thread in THREADS.iterdir():
            os.sched_setaffinity(int(thread.name), placement.cpus)
    except OSError as error:
        refused.append(f"binding to CPUs refused: {error.strerror}")
    if placement.node is not None and (reason := prefer_node(placement.node)):
        refused.append(f"binding to memory node {placement.node} refused: {reason}")
    return tuple(refused)


def prefer_node(node: int) -> str | None:
    """Take memory from a node first, in this thread and those it starts; return the reason of a failure, or None."""
    number = SET_MEMPOLICY.get(platform.machine())
    if number is None:
        return f"the number of set_mempolicy on {platform.machine()} is not known"
    bits = 64 * (node // 64 + 1)
    mask = (ctypes.c_ulong * (bits // 64))()
    mask[node // 64] = 1 << node % 64
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel reads one bit less than the given number.
    if libc.syscall(ctypes.c_long(number), ctypes.c_int(MPOL_PREFERRED), mask, ctypes.c_ulong(bits + 1)):
        return os.strerror(ctypes.get_errno())
    return None


def gpu_variables(placement: Placement, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that show CUDA this rank's GPU alone; none where the user has set them.

    Seen with one GPU, not with several.
    """
    if placement.gpu is None or VISIBLE in environ:
        return {}
    return {ORDER: "PCI_BUS_ID", VISIBLE: str(placement.gpu.index)}


AUTO: Final = "auto"
ROOT: Final = Path("/")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlacedRank:
    """Where a rank of this host computes, and what the machine refused."""

    placement: Placement
    machine: str
    """The host's topology in words."""
    notes: tuple[str, ...] = ()
    """What could not be done, or was better left, and why."""

    def __str__(self) -> str:
        return f"{self.machine}: rank on {self.placement}"


def place_rank(local_rank: int, local_size: int, root: Path = ROOT) -> PlacedRank:
    """Bind this process to its cores and their memory, with the GPU nearest to them."""
    try:
        topology = _read(root)
    except TopologyError as error:
        return unplaced(local_size, f"not placed: {error}")
    placement = place(topology, local_rank, local_size)
    notes = (*bind(placement), *_remarks(topology, placement, local_size))
    return PlacedRank(placement=placement, machine=str(topology), notes=notes)


def unbound_rank(local_rank: int, local_size: int, root: Path = ROOT) -> PlacedRank:
    """Return what a rank has that is bound to nothing: all CPUs, and the GPU that `place_rank` would give it."""
    try:
        topology = _read(root)
    except TopologyError as error:
        return unplaced(local_size, f"not placed: {error}")
    bound = place(topology, local_rank, local_size)
    placement = dataclasses.replace(bound, cpus=topology.cpus, node=None, exclusive=local_size == 1)
    return PlacedRank(placement=placement, machine=str(topology), notes=_remarks(topology, bound, local_size))


def place_program(local_rank: int, local_size: int, root: Path = ROOT) -> PlacedRank:
    """Bind this process to the cores near the GPU of its rank's number, where that takes nothing from others."""
    try:
        topology = _read(root)
    except TopologyError as error:
        return unplaced(local_size, f"not placed: {error}")
    placement = with_gpus_by_rank(topology, local_rank, local_size)
    reason = unbound_because(topology, local_size)
    notes = (f"not bound: {reason}",) if reason else bind(placement)
    if reason:
        placement = dataclasses.replace(placement, cpus=topology.cpus, node=None, exclusive=local_size == 1)
    return PlacedRank(placement=placement, machine=str(topology), notes=notes)


def unbound_because(topology: Topology, local_size: int) -> str:
    """Return why a host's ranks are better not bound; "" where they are to be."""
    if local_size == 1:
        return "the host's only rank"
    if local_size > len(topology.cores):
        return f"{local_size} ranks share {len(topology.cores)} cores"
    return "other containers may compute on these cores" if topology.shared else ""


def unplaced(local_size: int, note: str = "") -> PlacedRank:
    """Return what a rank that is not bound has: all CPUs, with threads for its share of them."""
    allowed = os.sched_getaffinity(0)
    placement = Placement(
        cpus=tuple(sorted(allowed)), cores=max(1, len(allowed) // local_size), node=None, exclusive=local_size == 1
    )
    return PlacedRank(placement=placement, machine=f"{len(allowed)} CPUs", notes=(note,) if note else ())


def _read(root: Path) -> Topology:
    return read_topology(root, os.sched_getaffinity(0))


def _remarks(topology: Topology, placement: Placement, local_size: int) -> tuple[str, ...]:
    """Return remarks on where the machine does not suit its ranks."""
    remarks = []
    if not placement.exclusive:
        remarks.append(f"{local_size} ranks share {len(topology.cores)} cores")
    if topology.gpus_on_bus and not topology.gpus:
        remarks.append(f"{topology.gpus_on_bus} GPUs on the bus are not those that this container has: none is chosen")
    return tuple(remarks)


OMP_THREADS: Final = "OMP_NUM_THREADS"
OMP_WAIT: Final = "KMP_BLOCKTIME"
ONEDNN: Final = "TF_ENABLE_ONEDNN_OPTS"
CALLER_THREAD: Final = "TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD"
INTRA_OP: Final = "TF_NUM_INTRAOP_THREADS"
INTER_OP: Final = "TF_NUM_INTEROP_THREADS"
"""TensorFlow reads these two where a program has set no threads by `tf.config.threading`."""


def thread_variables(threads: int, vector_bits: int) -> dict[str, str]:
    """Return the variables of a rank with so many threads within an operation, whatever it runs.

    `vector_bits`: width of the cores' vectors.
    """
    variables = {OMP_THREADS: str(threads), OMP_WAIT: "1"}
    if vector_bits >= 256:  # x86: TensorFlow leaves oneDNN off on cores without instructions made for networks
        variables[ONEDNN] = "1"
        if threads == 1:  # the pool's one thread would compute while the thread that called it waits
            variables[CALLER_THREAD] = "1"
    return variables
