"""The launcher of process groups: the ranks of all hosts, each host's over one SSH connection, until they have ended.

    python -m agent.launch.process_group RANKS_PYTHON RUN_DIRECTORY [-m MODULE ...]    # on the master

`torchrun` and `plain` start so (`agent.spec.launchers`). Where one rank ends wrongly, or a host no longer answers, all
others are ended, and the last line of the log names it. A run that is being stopped is left to its supervisor.
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
from agent.launch.rank_parent import MAX_LINE, Lines, parse_end
from agent.remote.command import remote_command
from agent.runs.directory import RunDirectory
from agent.spec.nodes import Node
from agent.spec.run import RUN_VARIABLE, RUNS_VARIABLE, RunSpec

_END_S: Final = 3 * END_GRACE_S
"""How long hosts may take to end their ranks: from SIGTERM to SIGKILL and to the end of the connection."""
_POLL_S: Final = 0.5


@dataclasses.dataclass(kw_only=True)
class Host:
    """One host of the group, and the connection that its ranks live with."""

    node: Node
    ssh: subprocess.Popen[bytes]
    lines: Lines = dataclasses.field(default_factory=lambda: Lines(b"", 2 * MAX_LINE))
    reported: bool = False
    """Whether a rank of it has reported that it ended wrongly."""


@dataclasses.dataclass(kw_only=True)
class ProcessGroup:
    """The ranks of a run on all its hosts."""

    spec: RunSpec
    hosts: tuple[Host, ...]
    out: int
    """File descriptor of the log."""
    failure: str = ""
    """What went wrong first, as a line for the log."""
    deadline: float | None = None

    def run(self) -> int:
        """Forward what the ranks write until all have ended; return 0 where all ended well, else 1."""
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
        for line in lines:
            if found := parse_end(line):
                rank, status = found
                if status:
                    host.reported = True
                    self._fail(f"[launcher] rank {rank} ended first: {status}")
            elif line.startswith(b"[") or not any(each.reported for each in self.hosts):
                _write(self.out, line)  # torchrun's own tracebacks would hide the program's.

    def _judge(self, host: Host) -> None:
        """Take note of a host whose connection has ended, unless a rank of it has said why."""
        status = host.ssh.wait()
        if status and not host.reported:
            self._fail(f"[launcher] {host.node.name} ended: {status}")

    def _fail(self, line: str) -> None:
        self.failure = self.failure or line

    def _end_where_failed(self) -> None:
        if not self.failure or RunDirectory(path=Path(self.spec.run_directory)).stop_request.exists():
            return
        if self.deadline is None:
            self.deadline = time.monotonic() + _END_S
            for host in self.hosts:
                host.ssh.stdin.close()  # type: ignore[union-attr]  # a pipe
        elif time.monotonic() > self.deadline:
            for host in self.hosts:
                host.ssh.kill()  # A host that is cut off never closes the connection.

    def _conclude(self) -> None:
        if self.failure:
            _write(self.out, f"{self.failure}\n".encode())


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def connect(spec: RunSpec, python: str, index: int, module: Sequence[str]) -> Host:
    """Start the ranks of one host over SSH. No variable but the run's travels on the command line."""
    node = spec.hosts[index]
    marks = (f"{RUN_VARIABLE}={spec.run_id}", f"{RUNS_VARIABLE}={spec.runs_root}", "PYTHONDONTWRITEBYTECODE=1")
    words = ["env", *marks, python, "-m", "agent.launch.host_ranks", spec.run_directory, str(index), *module]
    command = remote_command(node, spec.agent_directory, words, as_rank=True)
    pipe = subprocess.PIPE
    return Host(node=node, ssh=subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT))


def main(argv: Sequence[str]) -> int:
    """Launch the ranks of a run; return 0 where all ended well."""
    python, directory, *module = argv
    spec = RunSpec.read(directory)
    hosts = tuple(connect(spec, python, index, module) for index in range(len(spec.hosts)))
    return ProcessGroup(spec=spec, hosts=hosts, out=sys.stdout.fileno()).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
