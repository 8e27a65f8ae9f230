"""Set up one rank on its host, before TensorFlow is imported: read the topology, choose cores and GPU, bind."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Final

from agent.hardware.binding import bind, gpu_variables
from agent.hardware.machine import this_vector_bits
from agent.hardware.placement import Placement, place
from agent.hardware.topology import Topology, TopologyError, read_topology
from payload.models.registry import network
from payload.models.work import work
from payload.settings import Settings
from payload.training.rank_tuning import Job, Tuning, tune

ROOT: Final = Path("/")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankSetup:
    """What was chosen for this rank, and what the machine refused."""

    placement: Placement
    tuning: Tuning
    machine: str
    """The host's topology in words."""
    notes: tuple[str, ...] = ()
    """What could not be done, and why."""

    def values(self) -> dict[str, float | int | str | None]:
        """Return the values recorded of a run; the placement is this rank's."""
        return {
            "machine": self.machine,
            "placement": str(self.placement),
            **self.tuning.values(),
            "notes": "; ".join(self.notes),
        }

    def __str__(self) -> str:
        return "; ".join([f"{self.machine}: rank on {self.placement}", str(self.tuning), *self.notes])


def set_up_rank(settings: Settings, environ: MutableMapping[str, str], root: Path = ROOT) -> RankSetup:
    """Choose cores, memory, GPU, threads and Horovod's settings for this rank; bind it and set its variables.

    `environ`: identifies this rank (horovodrun sets it) and has the user's choices; variables are added, none changed.
    """
    local_rank, local_size = _number(environ, "HOROVOD_LOCAL_RANK", 0), _number(environ, "HOROVOD_LOCAL_SIZE", 1)
    allowed = os.sched_getaffinity(0)
    notes: tuple[str, ...] = ()
    placement, machine = unplaced(allowed, local_size), f"{len(allowed)} CPUs"
    if settings.placement == "auto":
        try:
            topology = read_topology(root, allowed)
        except TopologyError as error:
            notes = (f"not placed: {error}",)
        else:
            placement, machine = place(topology, local_rank, local_size), str(topology)
            notes = (*bind(placement), *_remarks(topology, placement, local_size))
            environ.update(gpu_variables(placement, environ))
    tuning = tune(
        job_of(settings, ranks=_number(environ, "HOROVOD_SIZE", 1)),
        placement,
        vector_bits=this_vector_bits(),
        environ=environ,
        intra_op_threads=settings.intra_op_threads,
        inter_op_threads=settings.inter_op_threads,
    )
    environ.update(tuning.variables)
    return RankSetup(placement=placement, tuning=tuning, machine=machine, notes=notes)


def unplaced(allowed: set[int], local_size: int) -> Placement:
    """Return the placement of a rank that is not bound, with threads for its share of the CPUs."""
    return Placement(
        cpus=tuple(sorted(allowed)), cores=max(1, len(allowed) // local_size), node=None, exclusive=local_size == 1
    )


def job_of(settings: Settings, *, ranks: int) -> Job:
    """Return what the ranks compute together, as estimated from the network as published."""
    known = network(settings.network)
    return Job(
        work=work(settings.network, settings.image_size),
        parameters=known.parameters,
        batch_per_rank=max(1, settings.global_batch // ranks) if settings.global_batch else settings.batch_per_rank,
        ranks=ranks,
        bytes_per_gradient=2 if settings.compression == "fp16" else 4,
    )


def _remarks(topology: Topology, placement: Placement, local_size: int) -> tuple[str, ...]:
    """Return remarks on where the machine does not suit its ranks."""
    remarks = []
    if not placement.exclusive:
        remarks.append(f"{local_size} ranks share {len(topology.cores)} cores")
    if topology.gpus_on_bus and not topology.gpus:
        remarks.append(f"{topology.gpus_on_bus} GPUs on the bus are not those that this container has: none is chosen")
    return tuple(remarks)


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    return int(text) if text.isdecimal() else default
