"""Open MPI under Horovod's launcher: where it lies, the command that starts ranks with it, and who each of them is.

Pure; standard library only. Horovod's own way to mpirun is a line for a shell, sets neither what makes waiting ranks
give way nor what finds the daemon on the other hosts, and has mpirun mark pieces of lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

PARAMETERS: Final = {
    # A thread that waits polls: without this it never leaves its core to the one that computes (docs/tuning.md).
    "mpi_yield_when_idle": "1",
    # The master alone has the `ssh` that verifies host keys as the cluster's registry lists them.
    "plm_rsh_no_tree_spawn": "1",
    # A host that is gone without a word is noticed after 60 s; Open MPI's own is 8 minutes.
    "oob_tcp_keepalive_time": "30",
    "oob_tcp_keepalive_intvl": "10",
    "oob_tcp_keepalive_probes": "3",
}
CONTROLLER: Final = {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}
TRANSPORTS: Final = ("--mca", "pml", "ob1", "--mca", "btl", "^openib")
"""Shared memory within a host and TCP between hosts, as Horovod has it: openib, and what UCX finds, hang at times."""
_PLACES: Final = {
    "HOROVOD_RANK": "OMPI_COMM_WORLD_RANK",
    "HOROVOD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "HOROVOD_LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}


def prefix(module: Path) -> Path:
    """Return where Open MPI lies, from Horovod's own module: in the same virtual environment."""
    return module.parents[4]  # lib/pythonX.Y/site-packages/horovod/__init__.py


def variables(base: Path, hosts: int, interfaces: Sequence[str]) -> dict[str, str]:
    """Return what mpirun reads of its environment, and the ranks, unless the user has set it.

    `base`: where Open MPI lies on all hosts; the master's own may lie elsewhere. `interfaces`: names, or networks as
    10.0.0.0/16, for mpirun's own messages.
    """
    parameters = {
        **PARAMETERS,
        "orte_launch_agent": str(base / "bin" / "orted"),
        "plm_rsh_num_concurrent": str(hosts),
        **({"oob_tcp_if_include": ",".join(interfaces)} if interfaces else {}),
    }
    return {f"OMPI_MCA_{name}": value for name, value in parameters.items()}


def command(
    base: Path, *, ranks: int, hosts: str, interfaces: Sequence[str], exported: Sequence[str], rank: Sequence[str]
) -> list[str]:
    """Build mpirun's command. `hosts`: NAME:SLOTS,...; `exported`: names of variables that the ranks get.

    Each rank has a parent (`agent.launch.mpi_rank`), run by the same Python.
    """
    return [
        *(str(base / "bin" / "mpirun"), "--allow-run-as-root"),
        *("-np", str(ranks), "-H", hosts),
        *("--bind-to", "none", "--map-by", "slot"),  # the payload binds
        *TRANSPORTS,
        *(("--mca", "btl_tcp_if_include", ",".join(interfaces)) if interfaces else ()),
        *(word for name in exported for word in ("-x", name)),
        *rank,
    ]


def placed(environ: Mapping[str, str]) -> dict[str, str]:
    """Return who a rank is in the words of horovodrun, from mpirun's.

    Raises KeyError where mpirun did not start this process.
    """
    return {name: environ[theirs] for name, theirs in _PLACES.items()}
