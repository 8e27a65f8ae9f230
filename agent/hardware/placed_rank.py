"""Place this process as one of its host's ranks: read the machine, choose cores, memory and GPU, and bind.

Of a recipe each rank is bound and shown its GPU alone (`place_rank`). A program of the user's own is placed more
carefully (`place_program`), since it may choose a GPU by itself, and since its ranks may wait by spinning: on a core
that others compute on, that takes their time.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Final

from agent.hardware.binding import bind
from agent.hardware.placement import Placement, place, with_gpus_by_rank
from agent.hardware.topology import Topology, TopologyError, read_topology

AUTO: Final = "auto"
NONE: Final = "none"
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
