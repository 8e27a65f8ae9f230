"""Carry out one run on the master: prepare the nodes, launch, watch, stop, clean up, and write state.json."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import json
import os
import pwd
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from payload import dossier, equipment, preflight, reaper, vault
from payload.archive import Copier
from payload.errand import Completed, execute, remote_command
from payload.knobs import Knobs
from payload.launch import NODE_PYTHON, Launch, Node
from payload.launcher import document, horovodrun, launcher_environment
from payload.owner import Owner
from payload.program import stage
from payload.runs import RunDirectory, Runs, State, write_atomically

POLL_S: Final = 0.2
HEARTBEAT_S: Final = 5.0
PREPARE_TIMEOUT_S: Final = 1800.0
"""Building Horovod on a node of a new type takes minutes; done once for each node and kept."""
DEFAULT_GRACE_S: Final = 30.0


class PreparationError(RuntimeError):
    """Report hosts on which the runtime could not be made; `failures` holds each host's last lines."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        self.failures = dict(failures)
        hosts_by_lines: dict[str, list[str]] = {}
        for host, lines in self.failures.items():
            hosts_by_lines.setdefault(lines, []).append(host)
        super().__init__("; ".join(f"{', '.join(hosts)}: {lines}" for lines, hosts in hosts_by_lines.items()))


def first_state(launch: Launch) -> State:
    """Build the state with which a run begins, owned by this process."""
    now = time.time()
    return State(
        run_id=launch.run_id,
        state="starting",
        owner=Owner.of(os.getpid()),
        started=now,
        updated=now,
        hosts=tuple(host.name for host in launch.hosts),
        recipe=launch.recipe,
    )


class Supervisor:
    """Oversee one run from its preparation to its final state. Lives in a process of its own, which the lock names."""

    def __init__(
        self, runs: Runs, launch: Launch, log: IO[bytes], run: Callable[[Sequence[str], float], Completed] = execute
    ) -> None:
        self.runs, self.launch, self.log, self._run = runs, launch, log, run
        self.directory: RunDirectory = runs[launch.run_id]
        self.ssh = f"{launch.payload_directory}/payload/bin/ssh"
        self.state = first_state(launch)
        self._stop_requested = False
        self._copier = Copier(self.directory, run)
        self._course: dict[str, Any] = {"archive": self._copier.address, "times": {}}

    def request_stop(self, *_: object) -> None:
        """Ask for a graceful end; the handler of SIGTERM."""
        self._stop_requested = True

    def oversee(self) -> State:
        """Carry the run through to its final state, and write that whatever happens."""
        self._update(reason="preparing the nodes")
        self._reach("started")
        try:
            python = self._prepare()
            self._reach("prepared")
            self._inspect(python)
            self._reach("inspected")
            if self._stop_requested:
                self._update(state="stopped", reason="stopped before it was launched")
            else:
                self._launch(python)
        except Exception as error:  # The state must be told, whatever went wrong; the traceback is in the log.
            known = isinstance(error, PreparationError | preflight.PreflightError)
            self._fail(str(error) if known else f"{type(error).__name__}: {error}")
            if not known and not isinstance(error, OSError):
                raise
        finally:
            if self.state.state != "succeeded":
                self._reap(signal.SIGKILL, wait_s=5.0)
            self._drop_secrets()
            self.runs.release(self.launch.run_id)
        return self.state

    def _prepare(self) -> str:
        """Clear what earlier runs left, make the runtime on every host at once; return its interpreter's path."""
        if self.launch.launcher:
            return NODE_PYTHON
        hosts = [None, *self.launch.hosts]
        clear = reaper.command(
            NODE_PYTHON,
            str(self.runs.root),
            run_id=self.launch.run_id,
            others=True,
            ranks_only=False,
            number=signal.SIGKILL,
            wait_s=10.0,
        )
        prepare = ["/bin/sh", "-c", equipment.script(self.launch, clear)]
        results = self._everywhere(hosts, prepare, PREPARE_TIMEOUT_S)
        if self._stop_requested:
            return ""
        failures = {name: _tail(done.output) for name, done in results.items() if done.status != 0}
        if failures:
            raise PreparationError(failures)
        paths = {name: done.output.strip().splitlines()[-1] for name, done in results.items()}
        if len(set(paths.values())) != 1:
            raise PreparationError({name: f"runtime at {path}" for name, path in paths.items()})
        if failed := vault.share(vault.vault(Path.home()), self.launch, self._remote):
            raise PreparationError(failed)
        return next(iter(paths.values()))

    def _is_stopping(self) -> bool:
        return self._stop_requested

    def _inspect(self, python: str) -> None:
        """Check the nodes before the ranks start; raise PreflightError, which names the bad ones."""
        launch = self.launch
        if launch.preflight == "skip" or launch.launcher or self._is_stopping():
            return
        self._update(reason="pre-flight: looking at the nodes")
        answers = self._everywhere(launch.hosts, preflight.facts_command(python, launch), 60.0)
        if self._is_stopping():
            return
        report, facts = preflight.judge(launch, answers, hashlib.sha256(self.directory.spec.read_bytes()).hexdigest())
        proved = self.runs.root / ".proved" / preflight.key(launch, python, facts)
        if not report.findings and (launch.preflight == "full" or not proved.exists()):
            self._update(reason="pre-flight: proving an allreduce")
            status, output = self._prove(python)
            if self._is_stopping():
                return
            report = preflight.judge_allreduce(launch, report, status, output)
            if not report.findings:
                proved.parent.mkdir(exist_ok=True)
                proved.touch()
        elif not report.findings:
            report = preflight.as_proved(report)
        write_atomically(self.directory.preflight, json.dumps(report.to_document(), indent=1))
        for line in report.lines():
            self._say(line)
        if report.findings:
            raise preflight.PreflightError(report)

    def _prove(self, python: str) -> tuple[int, str]:
        """Run the allreduce on the run's hosts; return its status, 124 after a time-out, and its output."""
        path = self.directory.path / "preflight.log"
        command = horovodrun(
            dataclasses.replace(self.launch, knobs=Knobs()), python, preflight.proof_ranks(python, self.launch)
        )
        deadline = time.monotonic() + preflight.PROOF_TIMEOUT_S
        with path.open("wb") as output:
            launcher = self._start(command, output, NCCL_DEBUG="INFO")
            while launcher.poll() is None and time.monotonic() < deadline and not self._is_stopping():
                time.sleep(POLL_S)
                self._heartbeat()
        status = launcher.poll()
        if status is None:
            self._reap(signal.SIGKILL, wait_s=5.0)
            launcher.terminate()
            self._wait_for(launcher, 10.0)
            if launcher.poll() is None:
                os.killpg(launcher.pid, signal.SIGKILL)
            launcher.wait()
        return 124 if status is None else status, path.read_text(encoding="utf-8", errors="replace")

    def _start(self, command: Sequence[str], output: IO[bytes], **variables: str) -> subprocess.Popen[bytes]:
        """Start a launcher in a session of its own, with the environment of Horovod's and these variables."""
        return subprocess.Popen(
            command,
            cwd=self.launch.payload_directory,
            env={**launcher_environment(self.launch, _login()), **variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _remote(self, host: Node, argv: Sequence[str]) -> list[str]:
        return remote_command(self.ssh, host, self.launch.payload_directory, argv)

    def _drop_secrets(self) -> None:
        """Remove the run's secrets everywhere, and here those of runs that ended without a supervisor."""
        if self.launch.secrets:
            drop = vault.command("drop", self.launch.run_id)
            for name, done in self._everywhere([None, *self.launch.hosts], drop, 30.0).items():
                if done.status != 0:
                    self._say(f"{name}: secrets not removed: {_tail(done.output)}")
        with contextlib.suppress(OSError):
            vault.sweep(vault.vault(Path.home()), self.runs)

    def _everywhere(self, hosts: Sequence[Node | None], argv: Sequence[str], timeout_s: float) -> dict[str, Completed]:
        """Run one command on all hosts at once, each in the payload's directory; keep every host's result."""
        directory = self.launch.payload_directory
        pool = concurrent.futures.ThreadPoolExecutor(max_workers=max(1, min(64, len(hosts))))
        try:
            futures = {
                pool.submit(self._run, remote_command(self.ssh, host, directory, argv), timeout_s): host.name
                if host
                else "this master"
                for host in hosts
            }
            waiting = set(futures)
            while waiting and not (self._stop_requested and self.state.state == "starting"):
                _, waiting = concurrent.futures.wait(waiting, timeout=POLL_S)
                self._heartbeat()
            return {name: future.result() for future, name in futures.items() if future.done()}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _launch(self, python: str) -> None:
        command = list(self.launch.launcher) or horovodrun(self.launch, python)
        stage(self.launch)
        started = document(self.launch, python, command, launcher_environment(self.launch, _login()))
        write_atomically(self.directory.launched, json.dumps(started, indent=1))
        self._say(f"$ {shlex.join(command)}")
        launcher = self._start(command, self.log)
        self._reach("launched")
        self._update(state="running", reason="")
        stopped_by_us = False
        while launcher.poll() is None:
            if self._stop_requested:
                stopped_by_us = True
                self._end(launcher)
                break
            time.sleep(POLL_S)
            self._heartbeat()
        status = launcher.wait()
        if stopped_by_us:
            self._update(state="stopped", reason="stopped on request", exit_code=status)
        elif status == 0:
            self._update(state="succeeded", reason="", exit_code=0)
        else:
            how = f"signal {-status}" if status < 0 else f"status {status}"
            self._fail(f"the launcher ended with {how}", exit_code=status)

    def _end(self, launcher: subprocess.Popen[bytes]) -> None:
        """End the ranks gracefully, then hard.

        SIGTERM goes to the ranks themselves: horovodrun would kill its SSH clients after 5 s, and leave the ranks.
        """
        grace_s = self._grace_s()
        self._say(f"stop requested: SIGTERM to the ranks, {grace_s:g} s until SIGKILL")
        self._update(reason=f"stopping, {grace_s:g} s of grace")
        if grace_s > 0:
            self._reap(signal.SIGTERM, wait_s=0.0)
            if self.launch.launcher:
                launcher.terminate()
            self._wait_for(launcher, grace_s)
        if launcher.poll() is None:
            self._say("grace is over: SIGKILL to the ranks")
            self._reap(signal.SIGKILL, wait_s=5.0)
            launcher.terminate()
            self._wait_for(launcher, 10.0)
        if launcher.poll() is None:
            os.killpg(launcher.pid, signal.SIGKILL)

    def _wait_for(self, launcher: subprocess.Popen[bytes], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while launcher.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
            self._heartbeat()

    def _reap(self, number: signal.Signals, wait_s: float) -> None:
        """Signal this run's ranks on every host; with SIGKILL also its launcher's remains on the master."""
        hosts: list[Node | None] = [None, *self.launch.hosts]
        final = number == signal.SIGKILL and not self.state.is_live
        argv = reaper.command(
            sys.executable if self.launch.launcher else NODE_PYTHON,
            str(self.runs.root),
            run_id=self.launch.run_id,
            others=False,
            ranks_only=not final,
            number=number,
            wait_s=wait_s,
        )
        for name, done in self._everywhere(hosts, argv, 30.0 + wait_s).items():
            if done.status != 0:
                self._say(f"{name}: {_tail(done.output)}")

    def _grace_s(self) -> float:
        try:
            return float(json.loads(self.directory.stop_request.read_text(encoding="utf-8"))["grace_s"])
        except (OSError, ValueError, KeyError, TypeError):
            return DEFAULT_GRACE_S

    def _fail(self, reason: str, exit_code: int | None = None) -> None:
        self._say(f"failed: {reason}")
        self._update(state="failed", reason=reason, exit_code=exit_code, last_lines=tuple(self.directory.last_lines()))

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a full disk must not end the supervisor while ranks are alive
            self.log.write(f"[supervisor] {line}\n".encode())
            self.log.flush()

    def _heartbeat(self) -> None:
        if time.time() - self.state.updated >= HEARTBEAT_S:
            self._update()
            if self._copier.is_due:
                self._keep_record(self.state)
                self._copier.begin()

    def _reach(self, step: str, **facts: object) -> None:
        """Write down that the run has reached a step, and what is known since."""
        self._course = {**self._course, **facts, "times": {**self._course["times"], step: round(time.time(), 3)}}
        with contextlib.suppress(OSError):  # a full disk is told where it ends the run
            dossier.keep_course(self.directory, self._course)

    def _keep_record(self, state: State) -> None:
        with contextlib.suppress(OSError, ValueError):
            dossier.keep_record(self.directory, state)

    def _update(self, **changes: object) -> None:
        state = dataclasses.replace(self.state, updated=time.time(), **changes)  # type: ignore[arg-type]  # checked by callers
        if state.has_ended:
            # Before anybody is told: whoever then destroys the cluster finds nobody who still writes to its bucket.
            self._reach("ended")
            self._keep_record(state)
            if trouble := self._copier.finish():
                self._say(f"the copy in the bucket is not whole: {trouble}")
                self._reach("ended", trouble=trouble)
        self.state = state
        self.directory.write_state(state)


def _login() -> dict[str, str]:
    user = pwd.getpwuid(os.getuid())
    return {"HOME": user.pw_dir, "USER": user.pw_name}


def _tail(output: str, lines: int = 5) -> str:
    return " | ".join(output.strip().splitlines()[-lines:]) or "no output"
