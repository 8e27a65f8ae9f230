"""The parent process of one rank: it labels and forwards the rank's output, and terminates all its processes.

    python -m agent.launch.rank_parent gloo COMMAND...     # over SSH, by horovodrun
    python -m agent.launch.rank_parent mpi COMMAND...      # by mpirun
    python -m agent.launch.rank_parent group COMMAND...    # by torchrun, or once per slot by agent.launch.host_ranks

A rank has exited when its main process has exited. Processes that are left in the background are reported and
terminated. SIGTERM asks the whole rank to stop (`agent.launch.process_tree`). There is no time limit for that.

horovodrun labels lines itself. For the other launchers, each line is printed as Horovod's launcher prints it, after
`[RANK]<stdout>:` or `[RANK]<stderr>:`. mpirun's own labels would be on parts of lines, and mix the lines of several
ranks. Under mpirun, the rank gets the variables that Horovod's launcher sets. In a process group, a last line reports
the rank's status.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.files.safe_read import is_listed
from agent.launch.full_disk import DiskWatch
from agent.launch.out_of_memory import MemoryWatch
from agent.launch.output_lines import Lines, check_read, write, write_all
from agent.launch.process_tree import STUCK_S, RankTree, describe
from agent.spec.launchers import MASTER_PORT
from agent.spec.run import RANK_VARIABLE, RUN_VARIABLE, RUNS_VARIABLE
from agent.spec.run_states import STOP_FILE

if TYPE_CHECKING:
    from agent.launch.silent_rank import WaitWatch

GLOO: Final = "gloo"
MPI: Final = "mpi"
GROUP: Final = "group"
SILENCE_S: Final = 1.0
"""How long the main process's leftovers may take to exit by themselves."""
_ENDING_S: Final = 0.1
EXITED: Final = "exited"
"""Scope for exited ranks in the store that connects ranks over Gloo (`agent.launch.gloo_store`)."""
STORE_PORT: Final = "deepcdk-gloo-store "
STORE_MISSING: Final = "deepcdk-gloo-store-missing "
"""Beginnings of the store's lines with its port, and with the ranks that have not joined."""
STORE_WAITS: Final = "wait"
"""The store's argument to let requests wait for ranks that have not joined."""
_STORE_S: Final = 3.0
_PLACES: Final = {f"HOROVOD_{name}": f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")}
_END: Final = "[launcher] rank {rank} ended: {status}"
_ENDED: Final = re.compile(rb"^\[launcher\] rank (\d{1,9}) ended: (-?\d{1,9})\n")


def parse_end(line: bytes) -> tuple[int, int] | None:
    """Return the rank and its status if the line reports the end of a rank, else None."""
    found = _ENDED.match(line)
    return (int(found[1]), int(found[2])) if found else None


def place_in_mpi(environ: Mapping[str, str]) -> dict[str, str]:
    """Return Horovod's variables for a rank's place (rank and size, global and local), from mpirun's variables.

    Raises KeyError if mpirun has not set them.
    """
    return {name: environ[theirs] for name, theirs in _PLACES.items()}


class Output:
    """The destination of a rank's output, depending on its launcher."""

    def __init__(self, launcher: str, rank: str) -> None:
        self._is_raw, self._rank = launcher == GLOO, rank
        self.descriptor = (sys.stdout if launcher == GROUP else sys.stderr).fileno()
        self._lines = {name: Lines(f"[{rank}]<{name}>:".encode()) for name in ("stdout", "stderr")}
        self._is_lost = False

    def check(self) -> None:
        """Raise BrokenPipeError if the output has no reader any more.

        Do nothing under horovodrun, because the run's supervisor terminates its ranks.
        """
        if not self._is_raw:
            check_read(self.descriptor)

    def feed(self, name: str, block: bytes) -> None:
        """Forward data from the stream `name` (stdout or stderr); b"" is its end. Waits for the reader.

        Raises BrokenPipeError if the output has no reader any more. Under horovodrun, nothing is raised: after a failed
        write, all further output is dropped.
        """
        if not self._is_raw:
            write(self.descriptor, self._lines[name].feed(block) if block else self._lines[name].end())
        elif not self._is_lost:
            try:
                write_all((sys.stdout if name == "stdout" else sys.stderr).fileno(), block)
            except OSError:
                self._is_lost = True

    def idle(self) -> None:
        """Forward the state of a progress bar if it is due. Call this while the rank writes nothing.

        Raises the same error as `check`.
        """
        for lines in () if self._is_raw else self._lines.values():
            write(self.descriptor, lines.idle())

    def end(self) -> None:
        """Forward the last lines that have no line end. Raises the same error as `check`."""
        for name in self._lines:
            self.feed(name, b"")

    def report(self, text: str) -> None:
        """Write the line `[launcher] rank RANK: TEXT`. Raises the same error as `check`."""
        line = f"[launcher] rank {self._rank}: {text}\n".encode()
        if self._is_raw:
            self.feed("stderr", line)
        else:
            write(self.descriptor, [line])


class Rank:
    """One rank: its main process and all the processes that it starts."""

    def __init__(
        self, process: subprocess.Popen[bytes], tree: RankTree, output: Output, waits: WaitWatch | None = None
    ) -> None:
        """Take over a rank that has started. `waits`: the watch for silent waits."""
        self._process, self._tree, self._output, self._waits = process, tree, output, waits
        self._memory = MemoryWatch(process.pid)
        self._disks = DiskWatch(process.pid, os.environ)
        self._exited_at = 0.0
        self._is_told = False
        self._scanned_at = 0.0
        self._is_over = False

    def follow(self) -> int:
        """Forward the rank's output until all its processes have exited; return the main process's status.

        The status is negative for a signal. Processes that the main process leaves behind are terminated; if they
        survive SIGKILL, they are reported and left. Full disks, lack of memory and silent waits are also reported.
        Raises BrokenPipeError if the output's reader has gone away.
        """
        main = os.pidfd_open(self._process.pid)
        with selectors.DefaultSelector() as streams:
            streams.register(main, selectors.EVENT_READ)
            for stream, name in ((self._process.stdout, "stdout"), (self._process.stderr, "stderr")):
                streams.register(stream, selectors.EVENT_READ, name)  # type: ignore[arg-type]  # both are pipes
            while True:
                is_ending = (self._tree.is_stopping or self._exited_at) and not self._tree.is_awaited()
                ready = streams.select(_ENDING_S if is_ending else SILENCE_S)
                self._output.check()
                self._memory.look()
                if not ready:
                    self._output.idle()
                if self._waits and (text := self._waits.look()):
                    self._output.report(text)
                for key, _ in ready:
                    block = os.read(key.fd, 1 << 16) if key.data else b""
                    if key.data:
                        self._output.feed(key.data, block)
                        for text in self._disks.look(block):
                            self._output.report(text)
                        if self._waits:
                            self._waits.take_output()
                    if not block:
                        streams.unregister(key.fileobj)
                if self._have_ended() and not streams.select(0):
                    break
        os.close(main)
        self._output.end()
        status = -signal.SIGKILL if self._process.returncode is None else self._process.returncode
        if text := self._memory.describe(status):
            self._output.report(text)
        return status

    def _have_ended(self) -> bool:
        """Return whether all processes of the rank have exited. If the main process has exited, terminate the others.

        Processes that SIGKILL does not terminate count as exited. Reads all processes of the node, so that is done at
        most once in _ENDING_S.
        """
        self._reap()
        if self._is_over or not (self._exited_at or self._tree.is_stopping):
            return self._is_over
        if self._tree.is_awaited():
            self._tree.tend()
            return False
        now = time.monotonic()
        if now < self._scanned_at + _ENDING_S:
            return False
        self._scanned_at, left = now, self._tree.find()
        if not left:
            self._reap()
            self._is_over = bool(self._exited_at)
        elif self._tree.is_stopping or now >= self._exited_at + SILENCE_S:
            if not (self._tree.is_stopping or self._is_told):
                self._is_told = True
                self._output.report(f"the program has exited; terminating its remaining processes: {describe(left)}")
            if self._tree.end(left):
                self._is_over = True
                advice = "do: replace this node with `fab replace`"
                self._output.report(f"SIGKILL did not terminate these processes: {describe(left)}; {advice}")
        return self._is_over

    def _reap(self) -> None:
        """Reap the processes that have exited: orphans, and the main process, whose status and time of exit are stored.

        Does not wait.
        """
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self._process.pid:
                    self._process.returncode = os.waitstatus_to_exitcode(found[1])
                    self._exited_at = time.monotonic()


def end_alike(status: int) -> int:
    """Return a rank's status. If it is negative, kill this process with the same signal instead."""
    if status < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def _wait_watch(launcher: str, tree: RankTree) -> WaitWatch | None:
    """Return the watch for a rank's silent waits; None for a single rank, and under Horovod, which reports them."""
    if launcher != GROUP or os.environ.get("WORLD_SIZE") in (None, "1"):
        return None
    from agent.launch.silent_rank import WaitWatch  # Not at the top: other ranks start faster.

    return WaitWatch(tree, (os.environ.get("MASTER_ADDR", ""), MASTER_PORT))


def _report_exit(environ: Mapping[str, str], rank: str) -> None:
    """Report to the store that a rank has exited, so that other ranks no longer wait for it. Errors are ignored.

    The store's address is in the variables `environ`.
    """
    with contextlib.suppress(OSError, ValueError):  # the store may have exited already
        place = [environ.get(f"HOROVOD_GLOO_RENDEZVOUS_{name}", "") for name in ("ADDR", "PORT")]
        with socket.create_connection((place[0], int(place[1])), _STORE_S) as connection:
            connection.sendall(f"PUT /{EXITED}/{rank} HTTP/1.1\r\nContent-Length: 1\r\n\r\n1".encode())
            connection.recv(1)


def _stops_run(environ: Mapping[str, str]) -> bool:
    """Return whether the whole run was asked to stop. In that case its supervisor handles the rest."""
    return is_listed(Path(environ.get(RUNS_VARIABLE, ""), environ.get(RUN_VARIABLE, ""), STOP_FILE))


def main(argv: Sequence[str]) -> int:
    """Run the rank; return its status, or exit by the signal that terminated it.

    The arguments are the launcher and the rank's command. Under horovodrun, a signal is returned as 128 plus its
    number. Returns 0 if the whole run was asked to stop under horovodrun or mpirun, 1 if the output's reader has gone
    away, and 2 if no launcher has started this process.
    """
    launcher, *command = argv
    try:
        if launcher == GLOO:
            rank, variables = os.environ["HOROVOD_RANK"], {}
        else:
            variables = place_in_mpi(os.environ) if launcher == MPI else {RANK_VARIABLE: os.environ["RANK"]}
            rank = next(iter(variables.values()))
    except KeyError as error:
        print(f"agent.launch.rank_parent must be started by a launcher: {error.args[0]} is not set", file=sys.stderr)
        return 2
    output, tree, pipe = Output(launcher, rank), RankTree(), subprocess.PIPE
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: tree.stop())
    process = subprocess.Popen(
        command,
        stdout=pipe,
        stderr=pipe,
        env={**os.environ, **variables},
        start_new_session=True,  # mpirun and torchrun signal a whole group, but the tree decides which processes to ask
        preexec_fn=tree.begin,  # this process has no threads
    )
    try:
        status = Rank(process, tree, output, _wait_watch(launcher, tree)).follow()
        if launcher == GROUP:
            write(output.descriptor, [f"{_END.format(rank=rank, status=status)}\n".encode()])
    except OSError:  # The reader is gone, and no one else would stop the rank.
        tree.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STUCK_S)
        return 1
    if launcher == GLOO:
        _report_exit(os.environ, rank)
    if launcher != GROUP and tree.is_stopping and _stops_run(os.environ):
        return 0  # With another status, the launcher would kill ranks that are still saving a checkpoint.
    if launcher == GLOO:  # For any signal, ssh reports 255, the same as for a broken connection.
        return status if status >= 0 else 128 - status
    return end_alike(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
