"""Set up one rank on its host, before TensorFlow is imported: read the topology, choose cores and GPU, bind."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from agent.hardware.machine import this_vector_bits
from agent.hardware.placement import AUTO, ROOT, PlacedRank, gpu_variables, place_rank, unbound_rank, unplaced
from payload.models.registry import network
from payload.settings import Settings
from payload.training.rank_tuning import Job, Tuning, tune, untuned


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankSetup:
    """What was chosen for this rank, and what the machine refused."""

    placed: PlacedRank
    tuning: Tuning

    def values(self) -> dict[str, float | int | str | None]:
        """Return the values recorded of a run; the placement is this rank's."""
        return {
            "machine": self.placed.machine,
            "placement": str(self.placed.placement),
            **self.tuning.values(),
            "notes": "; ".join(self.placed.notes),
        }

    def __str__(self) -> str:
        return "; ".join([str(self.placed), str(self.tuning), *self.placed.notes])


def set_up_rank(settings: Settings, environ: MutableMapping[str, str], root: Path = ROOT) -> RankSetup:
    """Choose cores, memory, GPU, threads and Horovod's settings for this rank; bind it and set its variables.

    `environ`: identifies this rank (horovodrun sets it) and has the user's choices; variables are added, none changed.
    """
    local_rank, local_size = _number(environ, "HOROVOD_LOCAL_RANK", 0), _number(environ, "HOROVOD_LOCAL_SIZE", 1)
    placed = place_rank(local_rank, local_size, root) if settings.placement == AUTO else unplaced(local_size)
    environ.update(gpu_variables(placed.placement, environ))
    tuning = tune(
        job_of(settings, ranks=_number(environ, "HOROVOD_SIZE", 1)),
        placed.placement,
        vector_bits=this_vector_bits(),
        environ=environ,
        intra_op_threads=settings.intra_op_threads,
        inter_op_threads=settings.inter_op_threads,
    )
    environ.update(tuning.variables)
    return RankSetup(placed=placed, tuning=tuning)


def set_up_untuned_rank(settings: Settings, environ: MutableMapping[str, str], root: Path = ROOT) -> RankSetup:
    """Choose this rank's GPU, and leave everything else to the defaults of TensorFlow, Horovod and Linux."""
    local_rank, local_size = _number(environ, "HOROVOD_LOCAL_RANK", 0), _number(environ, "HOROVOD_LOCAL_SIZE", 1)
    placed = unbound_rank(local_rank, local_size, root)
    environ.update(gpu_variables(placed.placement, environ))
    job = job_of(settings, ranks=_number(environ, "HOROVOD_SIZE", 1))
    return RankSetup(placed=placed, tuning=untuned(job, environ=environ))


def job_of(settings: Settings, *, ranks: int) -> Job:
    """Return what the ranks compute together, as estimated from the network as published."""
    known = network(settings.network)
    return Job(
        multiply_adds=known.multiply_adds_at(settings.image_size),
        branches=known.branches,
        parameters=known.parameters,
        batch_per_rank=max(1, settings.global_batch // ranks) if settings.global_batch else settings.batch_per_rank,
        ranks=ranks,
        bytes_per_gradient=2 if settings.compression == "fp16" else 4,
    )


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    return int(text) if text.isdecimal() else default


def set_up_tensorflow(rank_setup: RankSetup, local_rank: int) -> None:
    """Start as many threads as this rank has cores, and take one GPU.

    TensorFlow would start as many threads as the host has, per rank. It computes on the first GPU that it sees, and
    takes memory on all of them: a rank that is shown several, since it was not placed or the user has set
    CUDA_VISIBLE_DEVICES, takes the one with its number on this host.
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(rank_setup.tuning.intra_op_threads)
    tf.config.threading.set_inter_op_parallelism_threads(rank_setup.tuning.inter_op_threads)
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) > 1:
        tf.config.set_visible_devices(gpus[local_rank % len(gpus)], "GPU")
