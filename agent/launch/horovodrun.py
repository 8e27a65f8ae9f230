"""Horovod's launcher, without the six seconds that it takes to import TensorFlow and inspect Horovod's build.

Runtimes are always built with Gloo and MPI.

    python -m agent.launch.horovodrun -np 2 -H a:1,b:1 --gloo env -C DIRECTORY COMMAND
    python -m agent.launch.horovodrun --runtime RUNTIME -np 2 -H a:1,b:1 --mpi env -C DIRECTORY PYTHON ...

In a run (set in the environment) this process is on the master. It opens no port and runs no command for a rank there.
The services that obey ranks are on the run's first host, as the user for ranks: over Gloo the store that connects ranks
(`agent.launch.gloo_store`), over MPI the mpirun of RUNTIME (`agent.launch.mpirun`). Without a run, both are here.
"""

from __future__ import annotations

import functools
import hashlib
import os
import select
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import IO, Any, Final

from agent.launch.output_lines import Lines
from agent.launch.rank_parent import SILENCE_S, STORE_MISSING, STORE_PORT, STORE_WAITS
from agent.spec.nodes import NODE_PYTHON
from agent.spec.run import RUN_VARIABLE, RUNS_VARIABLE, RunSpec

RANK_FAILED: Final = "Horovod detected that one or more processes exited with non-zero status"
"""Beginning of Horovod's message about the rank that exited first."""
GLOO_TIMEOUT: Final = "HOROVOD_GLOO_TIMEOUT_SECONDS"
_MAX_GREETING: Final = 1 << 16
_MAX_SHOWN: Final = 8


def option(arguments: Sequence[str], name: str) -> str:
    """Return the argument after the option `name` of horovodrun, or "" without the option."""
    return arguments[arguments.index(name) + 1] if name in arguments else ""


def cache_folder(folder: str, arguments: Sequence[str]) -> str:
    """Return a folder under `folder` where Horovod caches facts about the hosts in horovodrun's `arguments`.

    Horovod has a single file there, which concurrent runs on different hosts would overwrite.
    """
    return str(Path(folder) / hashlib.sha256(option(arguments, "-H").encode()).hexdigest()[:16])


class RemoteStore:
    """Starts one run's key-value store over SSH on its first host, in place of Horovod's RendezvousServer.

    horovodrun uses it on the master. The store is `agent.launch.gloo_store`.
    """

    def __init__(self, hosts: str, directory: str, *, waits: bool = True) -> None:
        """Configure the store. `hosts`: NAME:SLOTS,...; it runs on the first. `directory`: the agent's, on that host.

        `waits`: whether ranks wait for each other as long as all are alive, instead of Horovod's time-out.
        """
        self._hosts, self._directory, self._waits = hosts, directory, waits
        self._host = hosts.partition(":")[0]
        self._ssh: subprocess.Popen[bytes] | None = None

    @functools.cached_property
    def address(self) -> str:
        """Return the address of the store for ranks. Exits this process with a message if the name does not resolve."""
        try:
            return socket.gethostbyname(self._host)
        except OSError as error:
            sys.exit(
                f"[launcher] the name {self._host} does not resolve on the master: {error.strerror}; if `fab status` "
                "still shows this node, `fab replace` it; then `fab resume`"
            )

    def begin(self) -> None:
        """Start the store without waiting for it. It exits with this process, which closes its standard input."""
        marks = [f"{name}={os.environ[name]}" for name in (RUN_VARIABLE, RUNS_VARIABLE)]
        # One memory pool per thread would reserve more address space than the store may use.
        words = ["env", *marks, "MALLOC_ARENA_MAX=1", "PYTHONDONTWRITEBYTECODE=1", NODE_PYTHON, "-S"]
        words += ["-m", "agent.launch.gloo_store", self.address, self._hosts, *([STORE_WAITS] if self._waits else [])]
        script = f"cd {shlex.quote(self._directory)} && exec {shlex.join(words)}"
        self._ssh = subprocess.Popen(["ssh", self._host, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def start(self) -> int:
        """Start the store unless `begin` did, wait until it prints its port, and return the port.

        Also starts a thread that prints the store's reports of missing ranks. If the store exits before that, this
        process exits with a message.
        """
        if self._ssh is None:
            self.begin()
        ssh, answer = self._ssh, b""
        while block := os.read(ssh.stdout.fileno(), 1 << 12):  # type: ignore[union-attr]  # a pipe
            answer = (answer + block)[-_MAX_GREETING:]
            for line in answer.split(b"\n")[:-1]:
                port = line.removeprefix(STORE_PORT.encode())
                if port != line and port.isdigit() and len(port) < 6:
                    threading.Thread(target=self._forward, daemon=True).start()
                    return int(port)
        sys.exit(f"[launcher] {self._host} ended: {ssh.wait()}")  # type: ignore[union-attr]  # it was begun

    def _forward(self) -> None:
        """Print the store's reports of missing ranks as sentences, until the store exits.

        Only rank numbers are accepted, because ranks can forge such lines.
        """
        places = [
            name for host in self._hosts.split(",") for name in [host.rpartition(":")[0]] * int(host.rpartition(":")[2])
        ]
        lines = Lines(b"", _MAX_GREETING)
        while block := os.read(self._ssh.stdout.fileno(), 1 << 12):  # type: ignore[union-attr]  # it was begun
            for line in lines.feed(block):
                words = line.decode(errors="replace").removeprefix(STORE_MISSING).split()
                if not line.startswith(STORE_MISSING.encode()) or not all(
                    word.isdecimal() and len(word) < 7 for word in words
                ):
                    continue
                waited_s, *ranks = map(int, words)
                shown = [f"rank {rank} on {places[rank]}" for rank in ranks if rank < len(places)]
                more = f" and {len(shown) - _MAX_SHOWN} more" if len(shown) > _MAX_SHOWN else ""
                late = f"{', '.join(shown[:_MAX_SHOWN])}{more} to call hvd.init()"
                limit = f"their processes are alive. To limit the wait: --env {GLOO_TIMEOUT}=600"
                print(f"[launcher] waited {waited_s} s for {late}; {limit}", flush=True)

    def init(self, plan: object) -> None:
        """Do nothing: the store already knows its ranks. Horovod calls this method."""


def keep_off_master(launch: Any, gloo_run: Any, store: RemoteStore) -> None:
    """Prevent Horovod from opening ports and running ranks' commands on this machine.

    `launch` and `gloo_run` are modules of Horovod, which are changed. `store` replaces its rendezvous server. Horovod's
    search for common interfaces also opens a port, and unpickles the data that it receives. Each rank determines its
    own interface instead (`agent.launch.rank`).
    """
    launch.driver_service.get_common_interfaces = lambda settings, *_, **__: settings.nics or {""}
    launch.network.get_local_host_addresses = set  # no host counts as this machine, whatever its address
    launch.network.get_driver_ip = lambda _: store.address
    gloo_run.RendezvousServer = lambda _: store


def start_fork_server() -> SimpleNamespace:
    """Start a server that forks a process for each host, and return a replacement for Horovod's `multiprocessing`.

    Horovod starts a new Python for each host, and all import the same modules. On two cores, 64 of them take 1.8 s, and
    0.35 s when forked. The server starts up while this process imports Horovod. It listens on a socket below /tmp,
    because a path below TMPDIR may be too long for a socket. This process keeps all its temporary files there.
    """
    # Not at the top: the store starts before.
    import multiprocessing
    import tempfile
    from multiprocessing import forkserver

    tempfile.tempdir = "/tmp"  # noqa: S108  # multiprocessing makes a directory with a random name there
    modules = ["agent.launch.rank_parent", "agent.spec.run", "horovod.runner.common.util.safe_shell_exec"]
    multiprocessing.set_forkserver_preload(modules)
    forkserver.ensure_running()
    return SimpleNamespace(get_context=lambda _: multiprocessing.get_context("forkserver"))


def forward_output(source: Any, target: IO[str], stream: str, rank: int | None, with_time: bool) -> None:
    """Forward a rank's output from the pipe `source` to `target` line by line until it ends, and close the pipe.

    Each line begins with `[RANK]<STREAM>:`, unless `rank` is None. Only some states of a progress bar become lines
    (`Lines`). Replaces Horovod's function, which buffers lines of any length. `with_time` is only for Horovod's call
    and is ignored.
    """
    lines = Lines(b"" if rank is None else f"[{rank}]<{stream}>:".encode())
    poll, block = select.poll(), None
    poll.register(source, select.POLLIN)
    while block != b"":
        block = os.read(source.fileno(), 1 << 16) if poll.poll(SILENCE_S * 1000) else None
        for line in lines.idle() if block is None else lines.feed(block) if block else lines.end():
            target.write(line.decode(errors="replace"))
        target.flush()
    source.close()


def main() -> None:
    """Run Horovod's horovodrun with the arguments of this process, and with deepcdk's mpirun and output of ranks.

    In a run, this machine opens no port and runs no command for a rank. `--runtime DIR` as the first arguments gives
    the environment with Open MPI, by default this Python's. Exits with the launcher's status, and with Horovod's
    message if a rank fails.
    """
    runtime = Path(sys.prefix)
    if sys.argv[1:2] == ["--runtime"]:
        runtime = Path(sys.argv[2])
        del sys.argv[1:3]
    in_run = RUN_VARIABLE in os.environ
    if in_run:
        spec = RunSpec.read(f"{os.environ[RUNS_VARIABLE]}/{os.environ[RUN_VARIABLE]}")
        is_given = GLOO_TIMEOUT in {*dict(spec.environment), *spec.secrets}
        store = RemoteStore(option(sys.argv, "-H"), option(sys.argv, "-C"), waits=not is_given)
        if "--gloo" in sys.argv:
            store.begin()  # It starts up while this process imports Horovod.
    # mpirun starts its ranks itself, and this process may become mpirun.
    processes = None if "--mpi" in sys.argv else start_fork_server()

    # Horovod's launcher for LSF clusters would import setuptools.
    sys.modules["horovod.runner.js_run"] = without_lsf = ModuleType("horovod.runner.js_run")
    vars(without_lsf).update(js_run=None, is_jsrun_installed=lambda: False)
    from horovod.runner import gloo_run, launch
    from horovod.runner.common.util import safe_shell_exec

    launch.CACHE_FOLDER = cache_folder(launch.CACHE_FOLDER, sys.argv[1:])
    launch.gloo_built = launch.mpi_built = lambda verbose=False: True
    if "--mpi" in sys.argv:
        from agent.launch import mpirun  # Not at the top: other ranks start faster.

        launch.mpi_run = functools.partial(mpirun.run, runtime)
    if processes:
        safe_shell_exec.multiprocessing = processes
    safe_shell_exec.prefix_connection = forward_output
    if in_run:
        keep_off_master(launch, gloo_run, store)
        if "--mpi" in sys.argv:  # mpirun's own connections detect an unresponsive host.
            launch._check_all_hosts_ssh_successful = lambda *_, **__: True
    try:
        launch.run_commandline()
    except RuntimeError as error:
        if not str(error).startswith(RANK_FAILED):
            raise
        sys.exit(str(error))  # without a traceback of Horovod's own code, which would hide the rank's


if __name__ == "__main__":  # each forked process imports this module again
    main()
