"""Start the ranks of one host in a process group, and terminate them if the launcher on the master has gone away.

    python -m agent.launch.host_ranks RUN_DIRECTORY INDEX [-m MODULE ...]    # over SSH, by agent.launch.ssh_launcher
    python -m agent.launch.host_ranks RUN_DIRECTORY mpirun WORDS...          # over SSH, by agent.launch.mpirun

INDEX is the host's index in the run's spec. `mpirun` instead runs one command that starts the ranks of all hosts. The
launcher keeps standard input open while the ranks should live. It closes it if a rank has failed, and the kernel closes
it if the launcher or the connection is gone.
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

from agent.files.safe_read import is_listed
from agent.polling import wait_until
from agent.remote.processes import signal_run
from agent.runs.run_directory import RunDirectory
from agent.spec.launchers import MASTER_PORT, TORCHRUN, places
from agent.spec.run import RunSpec

END_GRACE_S: Final = 5.0
"""Seconds from SIGTERM to SIGKILL for the ranks of a failed run; the same as in horovodrun."""
TORCHRUN_SHUTDOWN_S: Final = 300
"""How long torchrun lets other ranks continue after one has exited. Its default of 30 s would shorten a stopped run's
grace period.

Older releases of PyTorch ignore the variable and use 30 s.
"""
MPIRUN: Final = "mpirun"
_POLL_S: Final = 0.1


def rank_words(python: str, spec: RunSpec, module: Sequence[str] = ()) -> list[str]:
    """Build the command that starts one rank: a parent process, which labels the output of the rank below it.

    The rank runs the run's command, or a module of the agent if `module` (`-m MODULE ...`) is not empty.
    """
    rank = [python, "-m", "agent.launch.rank", spec.run_directory, *module]
    return [python, "-m", "agent.launch.rank_parent", "group", *rank]


def torchrun(python: str, spec: RunSpec, index: int) -> list[str]:
    """Build the command of PyTorch's launcher for the host with this index.

    Ranks are numbered in the order of the spec's hosts.
    """
    return [
        *(python, "-m", "torch.distributed.run"),
        *("--nnodes", str(len(spec.hosts)), "--node-rank", str(index)),
        *("--nproc-per-node", str(spec.hosts[index].slots), "--max-restarts", "0"),
        *("--master-addr", spec.hosts[0].address, "--master-port", str(MASTER_PORT)),
        *("--no-python", *rank_words(python, spec)),
    ]


def host_commands(
    python: str, spec: RunSpec, index: int, module: Sequence[str] = ()
) -> list[tuple[list[str], dict[str, str]]]:
    """Return the commands to start on the host with this index, each with its additional environment variables.

    This is one command under torchrun, otherwise one for each rank. `module` is as in `rank_words`.
    """
    if spec.rank_launcher == TORCHRUN and not module:
        return [(torchrun(python, spec, index), {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(TORCHRUN_SHUTDOWN_S)})]
    return [(rank_words(python, spec, module), place) for place in places(spec.hosts, index)]


class HostRanks:
    """The processes that were started on this host."""

    def __init__(self, spec: RunSpec, started: Sequence[subprocess.Popen[bytes]]) -> None:
        self._spec, self._started = spec, started
        self._has_lost_launcher = threading.Event()

    def wait(self) -> int:
        """Wait until all processes have exited; return 0 if all succeeded, else 1.

        All processes are terminated if standard input ends, because the launcher has then gone away. They are also
        terminated if a process has failed and the run is not being stopped. The launcher may not detect such a failure:
        if the parent process of a rank is killed, nothing reports this, and the rank would continue.
        """
        threading.Thread(target=self._read_input, daemon=True).start()
        while not self._have_ended():
            if self._has_lost_launcher.wait(_POLL_S) or self._has_failed():
                break
        if self._has_failed() or not self._have_ended():
            self._end()
        return int(any(process.wait() != 0 for process in self._started))

    def _read_input(self) -> None:
        """Wait for the end of standard input, then record that the launcher has gone away."""
        while os.read(sys.stdin.fileno(), 1 << 10):
            pass
        self._has_lost_launcher.set()

    def _has_failed(self) -> bool:
        """Return whether a process has failed; False if the run is being stopped, because its supervisor then acts."""
        if not any(process.poll() for process in self._started):
            return False
        return not is_listed(RunDirectory(path=Path(self._spec.run_directory)).stop_request)

    def _have_ended(self) -> bool:
        return not [process for process in self._started if process.poll() is None]

    def _end(self) -> None:
        """Terminate the ranks with SIGTERM. After END_GRACE_S, kill all remaining processes of the run on this host."""
        for process in self._started:
            if process.poll() is None:
                process.terminate()
        wait_until(self._have_ended, timeout_s=END_GRACE_S, poll_s=_POLL_S)
        runs, run = self._spec.runs_root, self._spec.run_id
        signal_run(runs, run_id=run, others=False, ranks_only=False, number=signal.SIGKILL, wait_s=END_GRACE_S)


def start(words: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the command `words` with additional variables, with this process's output and without input."""
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, env={**os.environ, **variables})


def main(argv: Sequence[str]) -> int:
    """Start this host's ranks, or mpirun, and wait for them; return the exit status.

    The arguments are the run's directory, then `mpirun` and its command, or the host's index and, optionally, a module
    for the ranks. The status is mpirun's, or 128 plus its signal; otherwise 0 if all ranks succeeded, else 1.
    """
    directory, index, *module = argv
    spec = RunSpec.read(directory)
    if index == MPIRUN:
        process = start(module, {})
        HostRanks(spec, [process]).wait()
        return process.wait() if process.returncode >= 0 else 128 - process.returncode
    processes = [start(*each) for each in host_commands(sys.executable, spec, int(index), module)]
    return HostRanks(spec, processes).wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
