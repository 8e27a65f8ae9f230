"""Give a rank of a user program its part of the host, under any launcher: cores, memory, threads and GPU.

Recipes' ranks choose theirs themselves (`payload.training.rank_setup`), with the same modules of `agent.hardware`.
Variables that the user has set are never changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent.hardware.machine import this_vector_bits
from agent.hardware.placement import (
    INTER_OP,
    INTRA_OP,
    OMP_THREADS,
    ORDER,
    ROOT,
    PlacedRank,
    gpu_variables,
    place_program,
    thread_variables,
)
from agent.spec.launchers import TORCHRUN

_PLACES: Final = (("HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
_TORCHRUNS: Final = "1"
"""torchrun sets OMP_NUM_THREADS to this if a host has several ranks and it is unset (`torch.distributed.run`)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramSetup:
    """The placement and the variables of this rank."""

    placed: PlacedRank
    variables: tuple[tuple[str, str], ...]
    """Variables to set before the program starts."""

    def __str__(self) -> str:
        names = " ".join(f"{name}={value}" for name, value in self.variables)
        return "; ".join([str(self.placed), *self.placed.notes, *([names] if names else [])])


def set_up_program(
    environ: Mapping[str, str], *, launcher: str, own_gpu: bool, vector_bits: int | None = None, root: Path = ROOT
) -> ProgramSetup:
    """Bind this process to the rank's cores and memory. Return its placement and the variables for its program.

    `environ` contains what the launcher and the user have set; variables of the user are not changed. With `own_gpu`,
    CUDA shows only the rank's GPU, for a program that does not choose a GPU by its local rank. Otherwise CUDA shows all
    GPUs in the order of the bus. `vector_bits` is the width of the vector unit, by default this processor's. `root`
    contains /proc and /sys.
    """
    local_rank, local_size = local_place(environ)
    placed = place_program(local_rank, local_size, root)
    placement = placed.placement
    bits = this_vector_bits() if vector_bits is None else vector_bits
    cpus = len(placement.cpus) if placement.exclusive else len(placement.cpus) // local_size
    variables = thread_variables(placement.cores, bits)
    variables |= {INTRA_OP: str(placement.cores), INTER_OP: str(max(1, min(cpus, 2 * placement.cores)))}
    if own_gpu:
        variables |= gpu_variables(placement, environ)
    elif placement.gpu is not None:
        variables[ORDER] = "PCI_BUS_ID"  # so that local rank 3 gets the cores near CUDA's GPU 3
    chosen = tuple((name, value) for name, value in variables.items() if not _is_given(environ, name, launcher))
    return ProgramSetup(placed=placed, variables=chosen)


def local_place(environ: Mapping[str, str]) -> tuple[int, int]:
    """Return a rank's number on its host and the host's number of ranks, from its launcher's variables; else (0, 1)."""
    for rank, size in _PLACES:
        if environ.get(rank, "").isdecimal() and environ.get(size, "").isdecimal():
            return int(environ[rank]), int(environ[size])
    return 0, 1


def _is_given(environ: Mapping[str, str], name: str, launcher: str) -> bool:
    """Return whether the user has set the variable `name`.

    Under torchrun, the number of threads may be torchrun's own default, which ignores the ranks' cores and does not
    count.
    """
    return name in environ and not (launcher == TORCHRUN and name == OMP_THREADS and environ[name] == _TORCHRUNS)
