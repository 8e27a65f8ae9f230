"""Place a rank on its host: choose its cores, memory node, GPU and threads, and bind the process to them.

Each rank of a recipe is bound and sees only its own GPU (`place_rank`). A user program is placed more carefully
(`place_program`): it may choose a GPU itself, and its ranks may wait in busy loops, which slow down others on the same
cores. docs/tuning.md has the reasons. Standard library only.
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
    """Logical CPUs in ascending order: whole cores unless there are more ranks than cores."""
    cores: int
    """Number of physical cores, or fewer under a CPU quota. It determines the number of threads."""
    node: int | None
    """Memory node to allocate from first; None: the kernel chooses."""
    gpu: PciGpu | None = None
    exclusive: bool = True
    """Whether no other rank of this host computes on these cores."""

    def __str__(self) -> str:
        where = "" if self.node is None else f", memory node {self.node}"
        gpu = f", GPU {self.gpu.index} ({self.gpu.address})" if self.gpu else ""
        return f"CPUs {show_list(self.cpus)}{'' if self.exclusive else ' shared with other ranks'}{where}{gpu}"


def place(topology: Topology, local_rank: int, local_size: int) -> Placement:
    """Return the placement of the rank `local_rank` of a host with `local_size` ranks.

    Cores are assigned in the order of memory nodes. With at least one core per rank, each rank gets consecutive whole
    cores with all their hardware threads, ranks differ by at most one core, and no core is shared or unused. No rank
    spans two memory nodes if the ranks divide evenly among the nodes. With more ranks than cores, each rank gets one or
    more hardware threads, and neighbors share a core. With more ranks than hardware threads, every rank gets all CPUs.

    A quota of CPU time limits only the number of threads, not the cores: other containers with a quota would choose the
    same cores.
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
        cores=max(1, min(threads, int(topology.quota_cpus // local_size)) if has_tight_quota(topology) else threads),
        node=node,
        gpu=gpus(topology, local_size)[local_rank],
        exclusive=exclusive,
    )


def with_gpus_by_rank(topology: Topology, local_rank: int, local_size: int) -> Placement:
    """Return the placement of a rank if its program uses the GPU whose number is its local rank.

    `local_size` is the host's number of ranks. The cores are divided as in `place`, but a rank gets the share nearest
    to its GPU. With fewer GPUs than ranks, the placement is that of `place`.
    """
    if len(topology.gpus) < local_size:
        return place(topology, local_rank, local_size)
    numbered = dataclasses.replace(topology, gpus=topology.gpus[:local_size])
    near = [gpu.index if gpu else None for gpu in gpus(numbered, local_size)]
    return place(numbered, near.index(topology.gpus[local_rank].index), local_size)


def has_tight_quota(topology: Topology) -> bool:
    """Return whether a CPU quota grants less time than the cores have."""
    return topology.quota_cpus < len(topology.cores)


def gpus(topology: Topology, local_size: int) -> tuple[PciGpu | None, ...]:
    """Return the GPU of each of a host's `local_size` ranks, by local rank.

    Each rank in turn gets a free GPU on its cores' memory node. Then the other ranks get the GPUs that are left. With
    more ranks than GPUs, the further ranks share the GPUs in the same order. Without GPUs, each entry is None.
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
    """Return a rank's consecutive items. The shares are disjoint, cover all items, and differ by at most one item."""
    return tuple(items[rank * len(items) // ranks : (rank + 1) * len(items) // ranks])


THREADS: Final = Path("/proc/self/task")
MPOL_PREFERRED: Final = 1
"""Policy: allocate from this node first, and from others when it is full, so that memory never runs out early."""
SET_MEMPOLICY: Final = {"x86_64": 238, "aarch64": 237}
"""System call numbers. The C library has no function for this call, and libnuma is rarely installed."""
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER: Final = "CUDA_DEVICE_ORDER"


def bind(placement: Placement) -> tuple[str, ...]:
    """Bind all threads of this process to the CPUs, and its memory to the memory node.

    Return a description of each step that failed; () if all succeeded. A sandbox may forbid either step. The run then
    continues, only slower.
    """
    refused = []
    try:
        for thread in THREADS.iterdir():
            os.sched_setaffinity(int(thread.name), placement.cpus)
    except OSError as error:
        refused.append(f"cannot bind to the CPUs: {error.strerror}")
    if placement.node is not None and (reason := prefer_node(placement.node)):
        refused.append(f"cannot bind to memory node {placement.node}: {reason}")
    return tuple(refused)


def prefer_node(node: int) -> str | None:
    """Allocate from a memory node first, in this thread and its children; return the reason of a failure, or None."""
    number = SET_MEMPOLICY.get(platform.machine())
    if number is None:
        return f"the number of the system call set_mempolicy is unknown on {platform.machine()}"
    bits = 64 * (node // 64 + 1)
    mask = (ctypes.c_ulong * (bits // 64))()
    mask[node // 64] = 1 << node % 64
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel reads one bit less than this number.
    if libc.syscall(ctypes.c_long(number), ctypes.c_int(MPOL_PREFERRED), mask, ctypes.c_ulong(bits + 1)):
        return os.strerror(ctypes.get_errno())
    return None


def gpu_variables(placement: Placement, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that show CUDA only this rank's GPU. Tested with one GPU, not with several.

    Return {} if the placement has no GPU, or if CUDA_VISIBLE_DEVICES is set in `environ`.
    """
    if placement.gpu is None or VISIBLE in environ:
        return {}
    return {ORDER: "PCI_BUS_ID", VISIBLE: str(placement.gpu.index)}


AUTO: Final = "auto"
ROOT: Final = Path("/")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlacedRank:
    """A rank's placement on this host, with notes on steps that failed or were left out."""

    placement: Placement
    machine: str
    """Description of the host's topology."""
    notes: tuple[str, ...] = ()
    """Steps that were refused or deliberately left out, and why."""

    def __str__(self) -> str:
        return f"{self.machine}: rank on {self.placement}"


def place_rank(local_rank: int, local_size: int, root: Path = ROOT) -> PlacedRank:
    """Bind this process to its share of the cores and their memory; return the placement, with the GPU nearest to it.

    `local_size` is the host's number of ranks. The notes report steps that failed, shared cores, and GPUs that cannot
    be assigned. If the topology cannot be read, nothing is bound, and the placement contains all CPUs and no GPU.
    """
    try:
        topology = _read(root)
    except TopologyError as error:
        return unplaced(local_size, f"not placed: {error}")
    placement = place(topology, local_rank, local_size)
    notes = (*bind(placement), *_remarks(topology, placement, local_size))
    return PlacedRank(placement=placement, machine=str(topology), notes=notes)


def unbound_rank(local_rank: int, local_size: int, root: Path = ROOT) -> PlacedRank:
    """Return the placement of a rank that is not bound: all CPUs, and the GPU that `place_rank` would choose.

    `local_size` is the host's number of ranks. The number of cores is still this rank's share. If the topology cannot
    be read, the placement has no GPU.
    """
    try:
        topology = _read(root)
    except TopologyError as error:
        return unplaced(local_size, f"not placed: {error}")
    bound = place(topology, local_rank, local_size)
    placement = dataclasses.replace(bound, cpus=topology.cpus, node=None, exclusive=local_size == 1)
    return PlacedRank(placement=placement, machine=str(topology), notes=_remarks(topology, bound, local_size))


def place_program(local_rank: int, local_size: int, root: Path = ROOT) -> PlacedRank:
    """Bind this process to the cores near the GPU with its local rank's number; return the placement.

    `local_size` is the host's number of ranks. Nothing is bound if the topology under `root` cannot be read or if
    `unbound_because` gives a reason. The placement's notes then contain the reason, otherwise the steps that failed.
    """
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
    """Return why a host's ranks should not be bound, or "" if they should.

    The reasons are a single rank, more ranks than cores, and other containers that may use the cores.
    """
    if local_size == 1:
        return "the host's only rank"
    if local_size > len(topology.cores):
        return f"{local_size} ranks share {len(topology.cores)} cores"
    return "other containers may compute on these cores" if topology.shared else ""


def unplaced(local_size: int, note: str = "") -> PlacedRank:
    """Return the placement of a rank if the topology is unknown: all CPUs, with threads for its share of them.

    `local_size` is the host's number of ranks. `note` states why, unless it is "".
    """
    allowed = os.sched_getaffinity(0)
    placement = Placement(
        cpus=tuple(sorted(allowed)), cores=max(1, len(allowed) // local_size), node=None, exclusive=local_size == 1
    )
    return PlacedRank(placement=placement, machine=f"{len(allowed)} CPUs", notes=(note,) if note else ())


def _read(root: Path) -> Topology:
    return read_topology(root, os.sched_getaffinity(0))


def _remarks(topology: Topology, placement: Placement, local_size: int) -> tuple[str, ...]:
    """Return notes if ranks share cores, and if no GPU can be chosen; () if neither applies.

    No GPU is chosen if the container's GPUs do not match those on the bus.
    """
    remarks = []
    if not placement.exclusive:
        remarks.append(f"{local_size} ranks share {len(topology.cores)} cores")
    if topology.gpus_on_bus and not topology.gpus:
        remarks.append(
            f"cannot match the container's GPUs with the {topology.gpus_on_bus} GPUs on the bus, so no GPU is chosen"
        )
    return tuple(remarks)


OMP_THREADS: Final = "OMP_NUM_THREADS"
OMP_WAIT: Final = "KMP_BLOCKTIME"
ONEDNN: Final = "TF_ENABLE_ONEDNN_OPTS"
CALLER_THREAD: Final = "TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD"
INTRA_OP: Final = "TF_NUM_INTRAOP_THREADS"
INTER_OP: Final = "TF_NUM_INTEROP_THREADS"
"""TensorFlow reads these two variables unless the program sets its threads with `tf.config.threading`."""


def thread_variables(threads: int, vector_bits: int) -> dict[str, str]:
    """Return the environment variables for a rank with this number of threads within an operation.

    They set the number of OpenMP's threads and how long idle threads keep their core. On vectors of 256 bits or more,
    they also turn on oneDNN in TensorFlow. They apply to any program. `vector_bits` is the width of the cores' vectors.
    """
    variables = {OMP_THREADS: str(threads), OMP_WAIT: "1"}
    if vector_bits >= 256:  # x86: TensorFlow disables oneDNN on cores without instructions for neural networks
        variables[ONEDNN] = "1"
        if threads == 1:  # otherwise the pool's one thread computes while its caller waits
            variables[CALLER_THREAD] = "1"
    return variables
