"""Set up one rank on its host before TensorFlow is imported: choose cores and GPU, and bind the process."""

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
    """The placement and tuning of this rank."""

    placed: PlacedRank
    tuning: Tuning

    def values(self) -> dict[str, float | int | str | None]:
        """Return the machine, placement, tuning and notes to store in the run's record."""
        return {
            "machine": self.placed.machine,
            "placement": str(self.placed.placement),
            **self.tuning.values(),
            "notes": "; ".join(self.placed.notes),
        }

    def __str__(self) -> str:
        return "; ".join([str(self.placed), str(self.tuning), *self.placed.notes])


def set_up_rank(settings: Settings, environ: MutableMapping[str, str], root: Path = ROOT) -> RankSetup:
    """Choose and return this rank's cores, memory, GPU, threads and Horovod settings. Bind the process to its cores.

    `environ`: the process's environment, with horovodrun's variables and the user's choices. The variables for
    TensorFlow and Horovod are added to it; existing ones are never changed. Call this before TensorFlow is imported.
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
    """Choose only this rank's GPU, add its variables to `environ`, and return the setup.

    TensorFlow, Horovod and Linux use their defaults otherwise. Arguments as for `set_up_rank`.
    """
    local_rank, local_size = _number(environ, "HOROVOD_LOCAL_RANK", 0), _number(environ, "HOROVOD_LOCAL_SIZE", 1)
    placed = unbound_rank(local_rank, local_size, root)
    environ.update(gpu_variables(placed.placement, environ))
    job = job_of(settings, ranks=_number(environ, "HOROVOD_SIZE", 1))
    return RankSetup(placed=placed, tuning=untuned(job, environ=environ))


def job_of(settings: Settings, *, ranks: int) -> Job:
    """Return the workload of the ranks: the network's registered cost and size, and the batch in the settings.

    The multiply-adds are scaled to the image size in the settings. The parameters are those of the published network.
    """
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
    """Limit TensorFlow to this rank's threads and to one GPU. Call this before TensorFlow computes anything.

    By default, each rank would start as many threads as the host has cores. TensorFlow computes on the first visible
    GPU, but allocates memory on all of them. If several are visible (the rank was not placed, or the user set
    CUDA_VISIBLE_DEVICES), the rank uses the GPU with its local rank's number.
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(rank_setup.tuning.intra_op_threads)
    tf.config.threading.set_inter_op_parallelism_threads(rank_setup.tuning.inter_op_threads)
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) > 1:
        tf.config.set_visible_devices(gpus[local_rank % len(gpus)], "GPU")
