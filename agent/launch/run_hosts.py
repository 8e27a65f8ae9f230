"""The hosts of one run, for its supervisor: run commands on all of them, start launchers, and signal the ranks."""

from __future__ import annotations

import concurrent.futures
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, TypeVar

from agent.launch.launcher_command import launcher_environment
from agent.polling import wait_until
from agent.remote import processes, rank_leftovers
from agent.remote.ssh import OWN_TREE, TIMED_OUT, Completed, answers, as_root, remote_command
from agent.spec import untrusted_json
from agent.spec.long_lines import SEPARATOR
from agent.spec.nodes import NODE_PYTHON, Node
from agent.spec.run import RunSpec

POLL_S: Final = 0.2
END_S: Final = 10.0
"""How long a launcher may take to exit after SIGTERM."""
MAX_TAIL_LINE: Final = 1000
MASTER: Final = "this master"
"""The master's name in the results of `Hosts.everywhere`."""
LEFTOVERS: Final = "leftovers"
"""The command for root that removes the leftovers of ranks."""
CLEAR_S: Final = 30.0 + rank_leftovers.CLEARING_S
"""Time limit for this command."""

Key = TypeVar("Key")


class Hosts:
    """A run's hosts and the master. `on_poll` is called repeatedly while methods wait for them."""

    def __init__(
        self,
        spec: RunSpec,
        runs_root: Path,
        run: Callable[[Sequence[str], float], Completed],
        *,
        on_poll: Callable[[], None],
        is_cancelled: Callable[[], bool],
        log_line: Callable[[str], None],
    ) -> None:
        """Configure the hosts. `run` runs a command with a time-out; `is_cancelled` returns whether to give up."""
        self._spec, self._runs_root, self._run = spec, runs_root, run
        self._on_poll, self._is_cancelled, self.log_line = on_poll, is_cancelled, log_line
        self._unprepared: list[Node | None] = []
        """Nodes on which a preparation has started and may not have ended; None is the master."""

    def remote(self, host: Node | None, argv: Sequence[str], *, as_rank: bool = False) -> list[str]:
        """Build the command that runs `argv` on a host in the agent's tree; None is the master.

        `as_rank`: on a host, run as the user for ranks. Only that user and root can access its processes and files.
        """
        return remote_command(host, self._spec.agent_directory, argv, as_rank=as_rank)

    def everywhere(
        self, hosts: Sequence[Node | None], argv: Sequence[str], timeout_s: float, *, as_rank: bool = False
    ) -> dict[str, Completed]:
        """Run one command on all these hosts concurrently, each in the agent's tree; return the results by host name.

        None is the master, with the name MASTER. A failed command is also a result. Hosts that have not finished at a
        cancellation are missing in the result. `as_rank` is as in `remote`.
        """
        commands = {host.name if host else MASTER: self.remote(host, argv, as_rank=as_rank) for host in hosts}
        return self._run_all(commands, timeout_s)

    def prepare(
        self, argv: Sequence[str], timeout_s: float, *, admission: str, dirty: Sequence[Node]
    ) -> tuple[dict[str, Completed], dict[str, Completed], dict[str, Completed]]:
        """Run `argv` on the master and all hosts. Meanwhile, as root, let each host admit only this run, and remove the
        leftovers of ranks on the hosts `dirty`.

        Return three results by host name: of `argv`, of the admission and of the removal. Results that were unfinished
        at a cancellation are missing. `admission` is the command for root that admits the run.
        """
        hosts = {host.name: host for host in self._spec.hosts}
        nodes: dict[str, Node | None] = {MASTER: None, **hosts}
        clearing = {(LEFTOVERS, host.name): as_root(host, LEFTOVERS) for host in dirty}
        admitting = {("root", name): as_root(host, admission) for name, host in hosts.items()}
        preparing = {("", name): self.remote(host, argv) for name, host in nodes.items()}
        self._unprepared = list(nodes.values())
        # The short commands come first, because only 64 run at a time.
        done = self._run_all({**clearing, **admitting, **preparing}, timeout_s, to_finish=clearing)
        prepared, admitted, cleared = (
            {name: done[key] for key in keys if key in done for _, name in [key]}
            for keys in (preparing, admitting, clearing)
        )
        self._unprepared = [
            node for name, node in nodes.items() if name not in prepared or prepared[name].status == TIMED_OUT
        ]
        return prepared, admitted, cleared

    def end_preparation(self) -> None:
        """Kill the processes of a preparation that was cancelled or has timed out, on the nodes that had not finished.

        Otherwise they would continue for minutes, beside those of the next run.
        """
        if self._unprepared:
            nodes, self._unprepared = self._unprepared, []
            self.signal_run(signal.SIGKILL, wait_s=5.0, ranks_only=False, hosts=nodes, as_rank=False)

    def clear(self, hosts: Sequence[Node]) -> dict[str, Completed]:
        """Kill all processes of the ranks' user on these hosts, and remove its files and shared memory, as root.

        No rank that is still needed may run there. Return the results by host name; a failed command is also a result.
        Hosts on which it had not started at a cancellation are missing.
        """
        commands = {host.name: as_root(host, LEFTOVERS) for host in hosts}
        return self._run_all(commands, CLEAR_S, to_finish=commands)

    def _run_all(
        self, commands: Mapping[Key, Sequence[str]], timeout_s: float, *, to_finish: Container[Key] = ()
    ) -> dict[Key, Completed]:
        """Run the commands concurrently, at most 64 at a time; return the results by key. Calls `on_poll` meanwhile.

        At a cancellation, unfinished commands are not waited for, and are missing in the result. Commands in
        `to_finish`, which clear a host, are waited for once they have started, because they would kill the ranks of the
        next run. They have the time limit CLEAR_S instead of `timeout_s`.
        """
        pool = concurrent.futures.ThreadPoolExecutor(max_workers=max(1, min(64, len(commands))))
        try:
            futures = {
                pool.submit(self._run, command, CLEAR_S if key in to_finish else timeout_s): key
                for key, command in commands.items()
            }
            waiting = set(futures)
            while waiting and not self._is_cancelled():
                _, waiting = concurrent.futures.wait(waiting, timeout=POLL_S)
                self._on_poll()
            clearing = {future for future in waiting if not future.cancel() and futures[future] in to_finish}
            while clearing:
                _, clearing = concurrent.futures.wait(clearing, timeout=POLL_S)
                self._on_poll()
            return {key: future.result() for future, key in futures.items() if future.done() and not future.cancelled()}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def reachable(self, hosts: Sequence[Node]) -> list[Node]:
        """Return the hosts that respond, in the given order. An unresponsive host takes 3 s here, and 15 s over SSH."""
        with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, min(64, len(hosts)))) as pool:
            found = list(pool.map(answers, hosts))
        return [host for host, does in zip(hosts, found, strict=True) if does]

    def start(self, command: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a launcher in its own session, with the environment for launchers, and write its output to `output`."""
        return subprocess.Popen(
            command,
            cwd=OWN_TREE,
            env=launcher_environment(self._spec, login_variables()),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait_for(
        self, launcher: subprocess.Popen[bytes], timeout_s: float, until: Callable[[], bool] = lambda: False
    ) -> None:
        """Wait until the launcher has exited, for at most `timeout_s` seconds. Calls `on_poll` meanwhile.

        The wait also ends when `until` returns true.
        """

        def is_over() -> bool:
            self._on_poll()
            return launcher.poll() is not None or until()

        wait_until(is_over, timeout_s=timeout_s, poll_s=POLL_S)

    def kill(self, launcher: subprocess.Popen[bytes]) -> None:
        """Kill the ranks immediately, then terminate their launcher and wait for it.

        If the launcher still runs after END_S, kill it too.
        """
        self.signal_run(signal.SIGKILL, wait_s=5.0)
        launcher.terminate()
        self.wait_for(launcher, END_S)
        if launcher.poll() is None:
            os.killpg(launcher.pid, signal.SIGKILL)

    def signal_run(
        self,
        number: signal.Signals,
        wait_s: float,
        *,
        ranks_only: bool = True,
        hosts: Sequence[Node | None] | None = None,
        as_rank: bool = True,
    ) -> None:
        """Send a signal to this run's ranks on the master and all hosts, or only on `hosts`; None is the master.

        Without `ranks_only`, also signal the remaining processes of its launcher on the master. Without `as_rank`,
        signal processes of the login user on the hosts, instead of those of the user for ranks. Waits up to `wait_s`
        seconds for the processes to exit. Logs processes that still run after that (unless `wait_s` is 0), and hosts
        that cannot be reached.
        """
        argv = processes.command(
            sys.executable if self._spec.launcher else NODE_PYTHON,
            str(self._runs_root),
            run_id=self._spec.run_id,
            ranks_only=ranks_only,
            number=number,
            wait_s=wait_s,
        )
        asked = [None, *self._spec.hosts] if hosts is None else list(hosts)
        for name, done in self.everywhere(asked, argv, 30.0 + wait_s, as_rank=as_rank).items():
            if done.status and (trouble := _describe_left(done.output, number, wait_s)):
                self.log_line(f"{name}: {trouble}")


def _describe_left(output: str, number: signal.Signals, wait_s: float) -> str:
    """Return which processes of the run are left on a host after a signal, or why it was not sent.

    `output` is what `agent.remote.processes` printed, perhaps after a banner. Return "" if `wait_s` is 0 and the signal
    was sent.
    """
    try:
        left = untrusted_json.parse(output.strip().rpartition("\n")[2])["left"]
    except (ValueError, TypeError, KeyError):
        return f"cannot send {number.name} to the run's processes: {tail(output)}"
    return f"still running {wait_s:g} s after {number.name}: processes {', '.join(map(str, left))}" if wait_s else ""


def login_variables() -> dict[str, str]:
    """Return the variables HOME and USER of this process's user, from the user database."""
    user = pwd.getpwuid(os.getuid())
    return {"HOME": user.pw_dir, "USER": user.pw_name}


def tail(output: str, lines: int = 5) -> str:
    """Return the last lines of an output joined into one line, each of them truncated; "no output" if it is empty."""
    return SEPARATOR.join(line[:MAX_TAIL_LINE] for line in output.strip().splitlines()[-lines:]) or "no output"
