"""One attempt of a run, from the preparation of its hosts until its launcher has exited."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import IO, Final

from agent.launch.launcher_command import Interpreters, document, launcher_command, launcher_environment
from agent.launch.run_hosts import POLL_S, Hosts, login_variables
from agent.preflight import node_checks
from agent.preflight.report import PreflightError
from agent.preflight.runner import Preflight
from agent.remote.ssh import Completed
from agent.runs import run_log
from agent.runs.node_claims import Runs
from agent.runs.run_directory import RunDirectory
from agent.spec.run import RunSpec
from agent.supervisor import failure, launcher_messages, prepare_hosts
from agent.supervisor.prepare_hosts import PreparationError
from agent.supervisor.restart import Outcome, ask_uptimes, machine_fault
from agent.supervisor.run_writer import RunWriter
from agent.supervisor.unconnected_ranks import UnconnectedRanks

ON_REQUEST: Final = "stopped on request"


@dataclasses.dataclass(kw_only=True)
class StopRequest:
    """A request to stop the run gracefully. The first reason is kept."""

    why: str = ""
    """The reason as text; "" without a request."""

    def ask(self, why: str) -> None:
        """Request a graceful stop for the reason `why`. If a stop was requested before, the earlier reason is kept."""
        self.why = self.why or why

    def is_made(self) -> bool:
        """Return whether a stop was requested."""
        return bool(self.why)


@dataclasses.dataclass(kw_only=True)
class Attempt:
    """One attempt of a run, on the hosts of a spec."""

    spec: RunSpec
    runs: Runs
    stored: RunWriter
    stop: StopRequest
    log: IO[bytes]
    """launcher.log, with the output of the launcher and its ranks."""
    log_line: Callable[[str], None]
    execute: Callable[[Sequence[str], float], Completed]
    on_poll: Callable[[], None]
    """Called repeatedly while the attempt waits."""
    may_be_followed: bool
    """Whether a restart is left."""
    cleared: set[str] = dataclasses.field(default_factory=set)
    """Instance ids of hosts that the previous attempt cleared of the leftovers of other runs."""
    silent: set[str] = dataclasses.field(default_factory=set)
    """Instance ids of the hosts that did not answer after the attempt failed."""
    _launcher: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        """Create `hosts`, which runs commands on the hosts of the spec."""
        self.hosts = Hosts(
            self.spec,
            self.runs.root,
            self.execute,
            on_poll=self.on_poll,
            is_cancelled=self._stops_before_launch,
            log_line=self.log_line,
        )

    @property
    def _directory(self) -> RunDirectory:
        return self.runs[self.spec.run_id]

    def _stops_before_launch(self) -> bool:
        return self.stop.is_made() and self.stored.state.state == "starting"

    def carry_out(self) -> Outcome:
        """Prepare and check the hosts, launch the ranks, and wait until they exit; return the outcome.

        If the preparation or a check fails, the outcome is `failed`, with the machine fault if there was one. If a stop
        was requested before the launch, it is `stopped`, and nothing is launched. Raises SpecError if the uploaded
        program is missing, SupersededError if another master has taken over the run, and OSError.
        """
        began = time.monotonic()
        try:
            pythons, answers = self._prepare()
            runtime = {"kind": str(self.spec.runtime_kind or ""), "path": pythons.runtime, "python": pythons.ranks}
            self.stored.record_step("prepared", runtime=runtime)
            facts = self._preflight().run(pythons, answers)
            self.stored.record_step("inspected", runtime={**runtime, "versions": node_checks.software(facts)})
        except (PreparationError, PreflightError) as error:
            fault, _ = self._fault("", time.monotonic() - began)
            return Outcome(state="failed", reason=str(error), fault=fault)
        if self.stop.is_made():
            return Outcome(state="stopped", reason=f"{self.stop.why}, before the launch")
        return self._launch(pythons)

    def _prepare(self) -> tuple[Interpreters, dict[str, Completed]]:
        """Prepare the nodes; return the Python interpreters, and each host's output by name (`prepare_hosts.prepare`).

        A spec with its own launcher needs no preparation: the result is NO_RUNTIME without outputs. Raises
        PreparationError.
        """
        if self.spec.launcher:
            return prepare_hosts.NO_RUNTIME, {}
        return prepare_hosts.prepare(self.spec, self.hosts, is_stopped=self.stop.is_made, cleared=self.cleared)

    def _preflight(self) -> Preflight:
        return Preflight(
            spec=self.spec,
            directory=self._directory,
            runs_root=self.runs.root,
            hosts=self.hosts,
            is_cancelled=self._stops_before_launch,
            set_reason=lambda reason: self.stored.update(reason=reason),
            log_line=self.log_line,
        )

    def _launch(self, pythons: Interpreters) -> Outcome:
        """Launch the ranks with the interpreters `pythons`, wait until they exit, and return the outcome.

        A user program is first copied into the run's directory. A stop request terminates the ranks, and the outcome is
        `stopped`. If --together=require is violated, running ranks are terminated, and the outcome is `failed`, even if
        all ranks have succeeded. Other failures contain the reason, the machine fault and a lack of memory.
        """
        command = list(self.spec.launcher) or launcher_command(self.spec, pythons)
        prepare_hosts.stage(self.spec)
        self._tell_launch(command, pythons)
        began = time.monotonic()
        together = UnconnectedRanks(self.spec, self._directory)
        launcher = self._launcher = self.hosts.start(command, self.log)
        self.stored.record_step("launched")
        self.stored.update(state="running", reason="")
        stopped = not self._watch(launcher, together)
        if stopped:
            self._stop_ranks(launcher, self.stop.why or together.warning)
        status = launcher.wait()
        if stopped and self.stop.is_made():
            return Outcome(state="stopped", reason=self.stop.why, exit_code=status)
        if stopped or (status == 0 and self._check_at_end(together)):
            reason = f"{together.warning.removeprefix('warning: ')}. The run had --together=require"
            return Outcome(state="failed", reason=reason, exit_code=status)
        if status == 0:
            return Outcome(state="succeeded", reason=together.warning, exit_code=0)
        log = run_log.last_text(self._directory.log, launcher_messages.log_bytes(self.spec.ranks))
        ran_s = time.monotonic() - began
        fault, running = self._fault(log, ran_s)
        has_memory = not failure.out_of_memory(self.spec.hosts, launcher_messages.last_attempt(log))
        return Outcome(
            state="failed",
            reason=failure.reason(self.spec, status, log, running),
            exit_code=status,
            fault=fault,
            memory_after_s=None if has_memory else round(ran_s, 1),
        )

    def _tell_launch(self, command: Sequence[str], pythons: Interpreters) -> None:
        """Write launch.json, and log the launcher's command.

        The file contains the launcher's command and environment, and the ranks' command.
        """
        started = document(self.spec, pythons.ranks, command, launcher_environment(self.spec, login_variables()))
        self._directory.write(self._directory.launch_file, json.dumps(started, indent=1))
        self.log_line(f"$ {shlex.join(command)}")

    def _watch(self, launcher: subprocess.Popen[bytes], together: UnconnectedRanks) -> bool:
        """Wait until the launcher exits, and return True. Return False as soon as the run must stop before that.

        Calls `on_poll` repeatedly, and reports ranks that do not train together.
        """
        while launcher.poll() is None:
            if together.look():
                self._warn(together)
            if self.stop.is_made() or together.must_stop:
                return False
            time.sleep(POLL_S)
            self.on_poll()
        return True

    def _warn(self, together: UnconnectedRanks) -> None:
        """Store and log the warning that the ranks do not train together, or that it no longer applies."""
        self.log_line(together.warning or "the ranks are connected to each other now")
        self.stored.record_step("warned", together=together.warning)
        self.stored.update(reason=together.warning)

    def _check_at_end(self, together: UnconnectedRanks) -> bool:
        """Check the ranks' connections after they succeeded; return whether the run must count as failed.

        It must with --together=require, if the ranks did not train together. A changed warning is stored and logged.
        """
        if together.look_at_end():
            self._warn(together)
        return together.must_stop

    def _stop_ranks(self, launcher: subprocess.Popen[bytes], why: str) -> None:
        """Send SIGTERM to the ranks, and SIGKILL after the grace period of the stop request; only SIGKILL if it is 0.

        `why` is the reason to log. The ranks get SIGTERM directly. If horovodrun got it, it would kill its SSH clients
        after 5 s and leave the ranks behind. A launcher of the spec (`RunSpec.launcher`) gets it too. If horovodrun
        exits before the ranks, they get the rest of the grace period.
        """
        grace_s = self._directory.stop_grace_s()
        deadline = time.monotonic() + grace_s
        if grace_s > 0:
            self.log_line(f"{why}: sending SIGTERM to the ranks, and SIGKILL after {grace_s:g} s")
            self.stored.update(reason=f"{why}: stopping, SIGKILL after {grace_s:g} s")
            self.hosts.signal_run(signal.SIGTERM, wait_s=0.0)
            if self.spec.launcher:
                launcher.terminate()
            self.hosts.wait_for(launcher, grace_s)
            if not self.spec.launcher and (left_s := deadline - time.monotonic()) > 0:
                self.hosts.signal_run(signal.SIGTERM, wait_s=left_s)
        else:
            self.log_line(f"{why}: sending SIGKILL to the ranks at once, without time for a checkpoint")
            self.stored.update(reason=f"{why}: stopping with SIGKILL")
        if launcher.poll() is None:
            if grace_s > 0:
                self.log_line("the grace period is over: sending SIGKILL to the ranks")
            self.hosts.kill(launcher)

    def abandon(self) -> None:
        """Kill the launcher on this master. The ranks on other hosts now belong to another supervisor."""
        if self._launcher is not None and self._launcher.poll() is None:
            os.killpg(self._launcher.pid, signal.SIGKILL)  # The launcher leads its own process group.

    def _fault(self, log: str, ran_s: float) -> tuple[str, list[str]]:
        """Return the machine fault that caused a failure, and the names of the hosts that still run.

        These hosts answer and did not reboot during the attempt; they are asked for their uptimes. The fault is "" if
        there was none, the run was stopped, or no restart is left. Also sets `silent`. `log` is the end of the
        launcher's output, and `ran_s` the duration of the attempt in seconds. The result is "" and [], without asking,
        if neither a restart nor the reason of the failure depends on the answers.
        """
        is_needed = self.may_be_followed or launcher_messages.closing_hosts(log)
        if self.spec.launcher or self.stop.is_made() or not is_needed:
            return "", []
        up = ask_uptimes(self.hosts, self.spec.hosts)
        running = [name for name, up_s in up.items() if up_s >= ran_s]
        if not self.may_be_followed:
            return "", running
        self.silent = {host.instance_id for host in self.spec.hosts if host.name not in up}
        return machine_fault(self.spec, log, up, ran_s), running
