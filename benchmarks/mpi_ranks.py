"""Two ranks of Horovod over Open MPI, for `benchmarks.two_ranks`; the payload itself launches over Gloo alone.

The wheel comes from `python -m payload.horovod_wheel build --with-mpi`, which needs Open MPI and its headers (Debian:
libopenmpi-dev, openmpi-bin). It is unpacked for the comparison and goes before the Horovod that is installed.

    python -m benchmarks.mpi_ranks COMMAND...    # by mpirun: become one rank
"""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

MPIRUN: Final = (
    *("mpirun", "-np", "2", "--allow-run-as-root"),
    *("--bind-to", "none"),  # the payload binds
    *("--mca", "pml", "ob1", "--mca", "btl", "vader,self"),  # shared memory
    # A thread that waits for the other rank polls; without this it never leaves the core to the one that computes.
    *("--mca", "mpi_yield_when_idle", "1"),
)


def launch(
    command: Sequence[str], environ: Mapping[str, str], wheel: Path, scratch: Path
) -> tuple[list[str], dict[str, str]]:
    """Return the command that starts both ranks, and its environment. Unpacks the wheel into `scratch`.

    Raises FileNotFoundError without mpirun or the wheel.
    """
    if shutil.which("mpirun", path=environ.get("PATH")) is None:
        raise FileNotFoundError("no mpirun in PATH: the way `mpi` needs Open MPI (Debian: openmpi-bin)")
    overlay = scratch / "horovod"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(overlay)
    paths = os.pathsep.join(filter(None, [str(overlay), environ.get("PYTHONPATH", "")]))
    # Each rank prints to a file of its own: mpirun mixes long lines.
    started = [*MPIRUN, "--output-filename", f"{scratch / 'printed'}:nocopy"]
    own = {"PYTHONPATH": paths, "HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}
    return [*started, sys.executable, "-m", "benchmarks.mpi_ranks", *command], {**environ, **own}


def printed(scratch: Path) -> list[str]:
    """Return what each rank printed, errors too."""
    ranks = sorted((scratch / "printed").glob("*/rank.*"))
    return ["".join((rank / name).read_text() for name in ("stderr", "stdout")) for rank in ranks]


def placed(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a rank's place in the words of horovodrun, which the payload reads, from mpirun's.

    Raises KeyError where mpirun did not start this process.
    """
    return {
        "HOROVOD_LOCAL_RANK": environ["OMPI_COMM_WORLD_LOCAL_RANK"],
        "HOROVOD_LOCAL_SIZE": environ["OMPI_COMM_WORLD_LOCAL_SIZE"],
        "HOROVOD_SIZE": environ["OMPI_COMM_WORLD_SIZE"],
    }


def main(argv: Sequence[str]) -> None:
    """Turn into the rank, in a session of its own: the kernel shares the processor out by sessions."""
    os.execvpe("setsid", ["setsid", "--wait", *argv], {**os.environ, **placed(os.environ)})


if __name__ == "__main__":
    main(sys.argv[1:])
