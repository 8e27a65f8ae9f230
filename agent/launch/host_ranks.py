"""Start the ranks of one host of a process group, and end them when the launcher on the master has gone.

    python -m agent.launch.host_ranks RUN_DIRECTORY INDEX [-m MODULE ...]    # over SSH, by agent.launch.process_group
    python -m agent.launch.host_ranks RUN_DIRECTORY mpirun WORDS...          # over SSH, by agent.launch.mpi_daemons

INDEX is the host's place in the run's spec. `mpirun` starts the ranks of all hosts instead. The launcher keeps standard
input open for as long as the ranks are to live: it closes it where a rank has ended wrongly, and the kernel does where
the launcher or the connection is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.deadline import wait_until
from agent.files.listing import is_listed
from agent.remote.processes import signal_run
from agent.runs.directory import RunDirectory
from agent.spec.launchers import MASTER_PORT, TORCHRUN, places
from agent.spec.run import RunSpec

END_GRACE_S: Final = 5.0
"""From SIGTERM to SIGKILL for ranks whose run has failed; horovodrun's is as long."""
TORCHRUN_SHUTDOWN_S: Final = 300
"""How long torchrun lets ranks go on once one has ended; its own 30 s would cut a stopped run's grace short.

Older releases of PyTorch do not read the variable and keep their 30 s.
"""
MPIRUN: Final = "mpirun"
_POLL_S: Final = 0.1


def rank_words(python: str, spec: RunSpec, module: Sequence[str] = ()) -> list[str]:
    """Build what becomes one rank: the run's command, or a module of the agent, below the parent that marks lines."""
    rank = [python, "-m", "agent.launch.rank", spec.run_directory, *module]
    return [python, "-m", "agent.launch.rank_parent", "group", *rank]


def torchrun(python: str, spec: RunSpec, index: int) -> list[str]:
    """Build the command of PyTorch's launcher for one host; ranks are numbered in the order of the spec's hosts."""
    return [
        *(python, "-m", "torch.distributed.run"),
        *("--nnodes", str(len(spec.hosts)), "--node-rank", str(index)),
        *("--nproc-per-node", str(spec.hosts[index].slots), "--max-restarts", "0"),
        *("--master-addr", spec.hosts[0].address, "--master-port", str(MASTER_PORT)),
        *("--no-python", *rank_words(python, spec)),
    ]


def starts(
    python: str, spec: RunSpec, index: int, module: Sequence[str] = ()
) -> list[tuple[list[str], dict[str, str]]]:
    """Return what is started on a host: the words of each process, and its further variables."""
    if spec.rank_launcher == TORCHRUN and not module:
        return [(torchrun(python, spec, index), {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(TORCHRUN_SHUTDOWN_S)})]
    return [(rank_words(python, spec, module), place) for place in places(spec.hosts, index)]


class HostRanks:
    """The processes started on this host."""

    def __init__(self, spec: RunSpec, started: Sequence[subprocess.Popen[bytes]]) -> None:
        self._spec, self._started = spec, started
        self._has_lost_launcher = threading.Event()

    def wait(self) -> int:
        """Return 0 once all have ended well, 1 once one has not.

        All are ended where the launcher has gone, and where one has ended wrongly, of which the launcher may not learn:
        a process that was killed reports nothing, and its rank, if it has one, would go on without it.
        """
        threading.Thread(target=self._read_input, daemon=True).start()
        while not self._have_ended():
            if self._has_lost_launcher.wait(_POLL_S) or self._has_failed():
                break
        if self._has_failed() or not self._have_ended():
            self._end()
        return int(any(process.wait() != 0 for process in self._started))

    def _read_input(self) -> None:
        while os.read(sys.stdin.fileno(), 1 << 10):
            pass
        self._has_lost_launcher.set()

    def _has_failed(self) -> bool:
        """Return whether one has ended wrongly, but not in a run that is being stopped, which its supervisor ends."""
        if not any(process.poll() for process in self._started):
            return False
        return not is_listed(RunDirectory(path=Path(self._spec.run_directory)).stop_request)

    def _have_ended(self) -> bool:
        return not [process for process in self._started if process.poll() is None]

    def _end(self) -> None:
        """End the ranks: by SIGTERM, then all that is left of the run on this host by SIGKILL."""
        for process in self._started:
            if process.poll() is None:
                process.terminate()
        wait_until(self._have_ended, timeout_s=END_GRACE_S, poll_s=_POLL_S)
        runs, run = self._spec.runs_root, self._spec.run_id
        signal_run(runs, run_id=run, others=False, ranks_only=False, number=signal.SIGKILL, wait_s=END_GRACE_S)


def start(words: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start one process, with this one's output and without its input."""
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, env={**os.environ, **variables})


def main(argv: Sequence[str]) -> int:
    """Start this host's ranks and wait for their end."""
    directory, index, *module = argv
    spec = RunSpec.read(directory)
    if index == MPIRUN:
        process = start(module, {})
        HostRanks(spec, [process]).wait()
        return process.wait() if process.returncode >= 0 else 128 - process.returncode
    processes = [start(*each) for each in starts(sys.executable, spec, int(index), module)]
    return HostRanks(spec, processes).wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
