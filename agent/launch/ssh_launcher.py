"""The launcher of process groups: start the ranks of each host over one SSH connection, and wait until they exit.

    python -m agent.launch.ssh_launcher RANKS_PYTHON RUN_DIRECTORY [-m MODULE ...]    # on the master

It is used for `torchrun` and `plain` (`agent.spec.launchers`). If a rank fails or a host no longer responds, all others
are terminated, and the last line of the log names the failed one. If the run is being stopped, its supervisor
terminates the ranks instead.
"""

from __future__ import annotations

import dataclasses
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agent.launch.host_ranks import END_GRACE_S
from agent.launch.output_lines import Lines, write_all
from agent.launch.rank_parent import parse_end
from agent.remote.ssh import remote_command
from agent.runs.run_directory import RunDirectory
from agent.spec.long_lines import MAX_LINE
from agent.spec.nodes import Node
from agent.spec.run import RUN_VARIABLE, RUNS_VARIABLE, RunSpec

_END_S: Final = 3 * END_GRACE_S
"""How long hosts may take to terminate their ranks: SIGTERM, SIGKILL, and closing the connection."""
_POLL_S: Final = 0.5


@dataclasses.dataclass(kw_only=True)
class Host:
    """A host of the group, with the SSH connection to its ranks."""

    node: Node
    ssh: subprocess.Popen[bytes]
    lines: Lines = dataclasses.field(default_factory=lambda: Lines(b"", 2 * MAX_LINE))
    reported: bool = False
    """Whether a rank on this host has reported its failure."""


@dataclasses.dataclass(kw_only=True)
class ProcessGroup:
    """The ranks of a run on all its hosts."""

    spec: RunSpec
    hosts: tuple[Host, ...]
    out: int
    """File descriptor of the log."""
    failure: str = ""
    """The first failure, as a line for the log."""
    deadline: float | None = None

    def run(self) -> int:
        """Forward the ranks' output until all have exited; return 0 if all succeeded, else 1.

        After the first failure, all other ranks are terminated, unless the run is being stopped. The failure is written
        last.
        """
        with selectors.DefaultSelector() as streams:
            for host in self.hosts:
                streams.register(host.ssh.stdout, selectors.EVENT_READ, host)  # type: ignore[arg-type]  # a pipe
            while streams.get_map():
                for key, _ in streams.select(_POLL_S):
                    block = os.read(key.fd, 1 << 16)
                    self._forward(key.data, key.data.lines.feed(block) if block else key.data.lines.end())
                    if not block:
                        streams.unregister(key.fileobj)
                        self._judge(key.data)
                self._end_where_failed()
        self._conclude()
        return 1 if self.failure else 0

    def _forward(self, host: Host, lines: Sequence[bytes]) -> None:
        """Write a host's lines to the log, except for reports of ranks' ends. Record the failure of a rank.

        After a rank has failed, lines without a label are dropped.
        """
        for line in lines:
            if found := parse_end(line):
                rank, status = found
                if status:
                    host.reported = True
                    self._fail(f"[launcher] rank {rank} exited first: {status}")
            elif line.startswith(b"[") or not any(each.reported for each in self.hosts):
                write_all(self.out, line)  # After a failure, torchrun's tracebacks would hide the program's.

    def _judge(self, host: Host) -> None:
        """Wait for the exit of a host's SSH, whose output has ended.

        If it failed, record this, unless one of the host's ranks has reported its own failure.
        """
        status = host.ssh.wait()
        if status and not host.reported:
            self._fail(f"[launcher] {host.node.name} ended: {status}")

    def _fail(self, line: str) -> None:
        """Record `line` as the run's failure, unless another failure was recorded before."""
        self.failure = self.failure or line

    def _end_where_failed(self) -> None:
        """After a failure, make all hosts terminate their ranks, unless the run is being stopped.

        The first call closes each host's stdin, which makes the host terminate its ranks. Calls after the deadline kill
        the remaining SSH connections.
        """
        if not self.failure or RunDirectory(path=Path(self.spec.run_directory)).stop_request.exists():
            return
        if self.deadline is None:
            self.deadline = time.monotonic() + _END_S
            for host in self.hosts:
                host.ssh.stdin.close()  # type: ignore[union-attr]  # a pipe
        elif time.monotonic() > self.deadline:
            for host in self.hosts:
                host.ssh.kill()  # A disconnected host never closes the connection.

    def _conclude(self) -> None:
        """Write the first failure as the last line of the log."""
        if self.failure:
            write_all(self.out, f"{self.failure}\n".encode())


def connect(spec: RunSpec, python: str, index: int, module: Sequence[str]) -> Host:
    """Start the ranks of the host with this index over SSH, without waiting for them; return the host.

    `python` is the ranks' Python. `module` replaces the run's command if it is not empty. The caller must read the
    ranks' output from `ssh.stdout`. The ranks live while `ssh.stdin` is open: the host terminates them when it closes.
    The host reads everything else from the run's spec.
    """
    node = spec.hosts[index]
    marks = (f"{RUN_VARIABLE}={spec.run_id}", f"{RUNS_VARIABLE}={spec.runs_root}", "PYTHONDONTWRITEBYTECODE=1")
    words = ["env", *marks, python, "-m", "agent.launch.host_ranks", spec.run_directory, str(index), *module]
    command = remote_command(node, spec.agent_directory, words, as_rank=True)
    pipe = subprocess.PIPE
    return Host(node=node, ssh=subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT))


def main(argv: Sequence[str]) -> int:
    """Launch the ranks of a run; return 0 if all succeeded, else 1.

    The arguments are the ranks' Python, the run's directory and, optionally, a module for the ranks.
    """
    python, directory, *module = argv
    spec = RunSpec.read(directory)
    hosts = tuple(connect(spec, python, index, module) for index in range(len(spec.hosts)))
    return ProcessGroup(spec=spec, hosts=hosts, out=sys.stdout.fileno()).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
