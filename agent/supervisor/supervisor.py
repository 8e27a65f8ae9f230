"""Carry out one run on the master: prepare the nodes, launch, watch, stop, clean up, and write state.json."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import IO, Any, Final

from agent.files.atomic_write import write_atomically
from agent.launch.first_steps import choose_cycle
from agent.launch.horovodrun_command import Interpreters, document, launcher_command, launcher_environment
from agent.launch.hosts import POLL_S, Hosts, login, tail
from agent.preflight import checks
from agent.preflight.report import PreflightError
from agent.preflight.runner import Preflight
from agent.remote import secret_files
from agent.remote.command import Completed, execute
from agent.runs import accepted_spec, going_on, record
from agent.runs.directory import RunDirectory, State, SupersededError
from agent.runs.store import Runs
from agent.spec.nodes import Node
from agent.spec.remote_command import secrets_command
from agent.spec.resume import resume_point
from agent.spec.run import RunSpec
from agent.spec.states import STOP_GRACE_S
from agent.supervisor import failure, notification, preparation, scheduler, then_stop
from agent.supervisor.elastic.elastic_run import ElasticRun, describe
from agent.supervisor.elastic.joining import Joining
from agent.supervisor.metering import Meter
from agent.supervisor.notification import Notifier
from agent.supervisor.predecessor import LEFT, WANTED, Predecessor, document_of
from agent.supervisor.preparation import PreparationError
from agent.supervisor.program import stage
from agent.supervisor.restart import Outcome, Restarts, ask_uptimes, describe_restart, machine_fault
from agent.supervisor.resume import rewrite
from agent.supervisor.stored_run import StoredRun

HEARTBEAT_S: Final = 5.0
STOPPED: Final = "stopped on request"
SHUTS_DOWN: Final = "this supervisor was ended, as by a shutdown of the master; the run goes on by itself"


class Supervisor:
    """Supervise one run from its preparation to its final state, in a process of its own, which its claim names."""

    def __init__(
        self,
        runs: Runs,
        spec: RunSpec,
        log: IO[bytes],
        run: Callable[[Sequence[str], float], Completed] = execute,
        *,
        before: Predecessor | None = None,
    ) -> None:
        """`before`: a supervisor of this run that was lost; this one begins with the restart."""
        self.runs, self.log, self._run = runs, log, run
        self.directory: RunDirectory = runs[spec.run_id]
        state = State.starting(spec)
        self._stop_requested = False
        self._why_stopped = STOPPED
        self._meter = Meter(self.directory)
        self._notifier = Notifier(spec.notify, spec.run_id, self.directory.path, self._log)
        self._restarts: list[dict[str, Any]] = []
        self._silent: set[str] = set()
        """Instance ids of the hosts that did not answer when the last attempt ended."""
        self._told_waiting = -1
        self._wanted = len(spec.hosts)
        self._left: dict[str, Node] = {}
        """Hosts of earlier attempts that the present one does not have, by their names."""
        self._take(spec)
        self._launcher: subprocess.Popen[bytes] | None = None
        self._before = before
        if before:
            state = dataclasses.replace(state, started=before.started, reason=before.reason)
            self._restarts, self._wanted, self._left = [*before.restarts], before.wanted, {**before.left}
        self._stored = StoredRun(
            self.directory,
            state,
            run=run,
            log_line=self._log,
            settle=self._settle,
            earlier=before.course if before else None,
        )

    @property
    def state(self) -> State:
        """Return the state as it was stored last."""
        return self._stored.state

    def _take(self, spec: RunSpec) -> None:
        """Take the spec of the next attempt, with its hosts."""
        self.spec = spec
        self._meter.take(spec)
        self._elastic: ElasticRun | None = None
        self._joining: Joining | None = None
        self._hosts = self._hosts_of(spec, self._heartbeat)
        self._preflight = Preflight(
            spec=spec,
            directory=self.directory,
            runs_root=self.runs.root,
            hosts=self._hosts,
            is_cancelled=self._stops_before_launch,
            set_reason=self._set_reason,
            log_line=self._log,
        )

    def _hosts_of(self, spec: RunSpec, on_poll: Callable[[], None] = lambda: None) -> Hosts:
        """Return a spec's hosts; beside this thread, which alone stores anything, without `on_poll`."""
        return Hosts(
            spec,
            self.runs.root,
            self._run,
            on_poll=on_poll,
            is_cancelled=self._stops_before_launch,
            log_line=self._log,
        )

    def request_stop(self, *_: object) -> None:
        """Ask for a graceful end; the handler of SIGTERM."""
        self._stop_requested = True

    def _stops_before_launch(self) -> bool:
        return self._stop_requested and self.state.state == "starting"

    def supervise(self) -> State:
        """Carry the run through to its final state, and write that whatever happens.

        Where another process has given it up for dead, as a new master does that cannot see this one, nothing more is
        written and no host is touched: a later attempt has them.
        """
        try:
            return self._carry_through()
        except SupersededError as error:
            if self._launcher is not None and self._launcher.poll() is None:
                os.killpg(self._launcher.pid, signal.SIGKILL)  # A session of its own, on this host.
            return dataclasses.replace(self.state, state="failed", reason=str(error))

    def _carry_through(self) -> State:
        if not self._before:
            self._stored.update(reason="preparing the nodes")
            self._stored.record_step("started", **{WANTED: self._wanted})
        try:
            self.directory.open_to_ranks()
            outcome = self._take_up(self._before) if self._before else self._attempt()
            while outcome.fault and self._restart(outcome.fault):
                outcome = self._attempt()
            if self._is_left(outcome):
                self._log(SHUTS_DOWN)
                self._stored.update(reason=SHUTS_DOWN)
                self._finish_telling()
                self._stored.is_ours = False
            else:
                self._end(outcome)
        except SupersededError:
            raise
        except Exception as error:  # The state must be stored, whatever went wrong; the traceback is in the log.
            self._end(Outcome(state="failed", reason=f"{type(error).__name__}: {error}"))
            if not isinstance(error, OSError):
                raise
        finally:
            if self._stored.is_ours:
                self._clean_up()
        return self.state

    def _is_left(self, outcome: Outcome) -> bool:
        """Return whether the run is left to its next supervisor: nobody has asked it to stop, but the master ends."""
        asked = self._stop_requested and self._why_stopped == STOPPED
        return asked and outcome.state != "succeeded" and going_on.may_go_on(self.directory.path)

    def _clean_up(self) -> None:
        """Leave nothing of the run behind but its files, and let the next one begin."""
        if self.state.state != "succeeded":
            self._hosts.signal_run(signal.SIGKILL, wait_s=5.0, ranks_only=self.state.is_live)
        if self._left:
            self._hosts.signal_run(signal.SIGKILL, wait_s=5.0, hosts=list(self._left.values()))
        self._notifier.tell_end(self.state)
        self._remove_secrets()
        with contextlib.suppress(OSError):
            self.directory.close_to_ranks()
        self._stop_workers()
        self._finish_telling()
        self.runs.release(self.spec.run_id)

    def _take_up(self, before: Predecessor) -> Outcome:
        """End what a lost supervisor has left, its launcher too; return what has become of its attempt."""
        # Ranks that have outlived it are well: those of a recipe write a checkpoint.
        self._hosts.signal_run(signal.SIGTERM, wait_s=STOP_GRACE_S)
        self._hosts.signal_run(signal.SIGKILL, wait_s=5.0, ranks_only=False)
        self._note_frozen()
        return before.outcome(self.directory, self.spec)

    def _attempt(self) -> Outcome:
        """Carry one attempt from the preparation of its hosts to its end."""
        began = time.monotonic()
        try:
            pythons, answers = self._prepare()
            runtime = {"kind": str(self.spec.runtime_kind or ""), "path": pythons.runtime}
            self._stored.record_step("prepared", runtime=runtime)
            facts = self._preflight.run(pythons, answers)
            self._stored.record_step("inspected", runtime={**runtime, "versions": checks.software(facts)})
        except (PreparationError, PreflightError) as error:
            return Outcome(state="failed", reason=str(error), fault=self._fault("", time.monotonic() - began))
        if self._stop_requested:
            return Outcome(state="stopped", reason=f"{self._why_stopped}, before it was launched")
        return self._launch(pythons)

    def _fault(self, log: str, ran_s: float) -> str:
        """Return what was wrong with the machine where an attempt failed; "" where nothing was, or nobody restarts."""
        if self.spec.launcher or self._stop_requested or len(self._restarts) >= self.spec.restarts:
            return ""
        # Of an elastic run, hosts that were lost before have not ended it.
        spec = self._elastic.judged(self.spec) if self._elastic else self.spec
        up = ask_uptimes(self._hosts, spec.hosts)
        self._silent = {host.instance_id for host in spec.hosts if host.name not in up}
        # A host that joined an elastic run has been up for less; one of it that rebooted was lost by its connection.
        return machine_fault(spec, log, up, 0.0 if self._elastic else ran_s)

    def _restart(self, fault: str) -> bool:
        """Take the spec of the next attempt, on hosts that answer; return False where there are none."""
        number, began = len(self._restarts) + 1, time.time()
        title = describe_restart(number, self.spec.restarts, fault)
        self._stored.update(state="starting", reason=title, exit_code=None)
        answering = [host for host in self.spec.hosts if host.instance_id not in self._silent]
        self._hosts.signal_run(signal.SIGKILL, wait_s=5.0, hosts=[None, *answering])
        spec = self._search(self.spec, self._hosts, self._silent).next_spec(title)
        if spec is None:
            return False
        waited_s, hosts = round(time.time() - began, 1), [host.name for host in spec.hosts]
        self._restarts.append({"time": began, "for": fault, "waited_s": waited_s, "hosts": hosts})
        names = {host.name for host in spec.hosts}
        left = {host.name: host for host in self.spec.hosts} | self._left
        self._left = {name: host for name, host in left.items() if name not in names}
        self.directory.preflight.unlink(missing_ok=True)
        # Before the spec: a supervisor that takes over in between knows all hosts that may have ranks.
        self._stored.record_step("restarted", restarts=self._restarts, **{LEFT: document_of(self._left)})
        rewrite(self.directory, spec)
        self._take(spec)
        # A host that was cut off and answers again may still have the ranks of before.
        self._hosts.signal_run(signal.SIGKILL, wait_s=5.0)
        self._log(f"{title}: {resume_point(spec, record.checkpoints(self.directory))}, {spec.placed}")
        self._stored.update(reason=f"{title}: preparing the nodes", hosts=tuple(hosts))
        self._notifier.tell(notification.RESTARTED, f"{title}, {spec.placed}")
        return True

    def _search(self, spec: RunSpec, hosts: Hosts, silent: Collection[str] = ()) -> Restarts:
        """Return the search for hosts with which a run goes on."""
        return Restarts(
            spec=spec,
            wanted=self._wanted,
            hosts=hosts,
            silent=silent,
            runs=self.runs,
            is_stopped=lambda: self._stop_requested,
            set_reason=self._wait,
            log_line=self._log,
        )

    def _end(self, outcome: Outcome) -> None:
        """Store how the run ended."""
        if outcome.fault and self._stop_requested:  # while it waited for nodes
            self._stored.update(state="stopped", reason=self._why_stopped, exit_code=outcome.exit_code)
        elif outcome.state == "failed":
            made = len(self._restarts)
            again = f" (after {made} restart{'s' if made > 1 else ''})" if made else ""
            self._fail(outcome.reason + again, exit_code=outcome.exit_code)
        else:
            self._stored.update(state=outcome.state, reason=outcome.reason, exit_code=outcome.exit_code)

    def _wait(self, reason: str) -> None:
        """Store that a restart waits for nodes; tell of it once a restart."""
        if self._told_waiting != len(self._restarts):
            self._told_waiting = len(self._restarts)
            self._notifier.tell(notification.WAITING, reason)
        self._set_reason(reason)

    def _set_reason(self, reason: str) -> None:
        self._stored.update(reason=reason)

    def _prepare(self) -> tuple[Interpreters, dict[str, Completed]]:
        """Prepare the master and all hosts at once; return the launch's interpreters and each host's answer."""
        if self.spec.launcher:
            return preparation.NO_RUNTIME, {}
        return preparation.prepare(self.spec, self._hosts, is_stopped=lambda: self._stop_requested)

    def _remove_secrets(self) -> None:
        """Remove the run's secrets everywhere, and here those of runs that ended without a supervisor."""
        if self.spec.secrets:
            drop = secrets_command("drop", self.spec.run_id)
            for name, done in self._hosts.everywhere(
                [None, *self.spec.hosts, *self._left.values()], drop, 30.0, as_rank=True
            ).items():
                if done.status != 0:
                    self._log(f"{name}: secrets not removed: {tail(done.output)}")
        with contextlib.suppress(OSError):
            secret_files.remove_stale(secret_files.master_directory(Path.home()), self.runs)

    def _stop_workers(self) -> None:
        """End the workers where this run or one before it has asked for that, and no other is live or waits."""
        with contextlib.suppress(OSError):
            if told := then_stop.stop_workers(self.runs, self.spec.stop_policy, by=self.spec.run_id, run=self._run):
                self._log(told)
                self._stored.record_step("workers", workers=told)
                self._stored.write_record()
                if told.startswith(then_stop.NOT_STOPPED):
                    self._notifier.tell(notification.FAILED, told)

    def _finish_telling(self) -> None:
        """Wait until all has been told; record what could not be."""
        self._notifier.finish()
        if failures := list(self._notifier.failures):
            self._stored.record_step("told", notify=failures)
            self._stored.write_record()

    def _launch(self, pythons: Interpreters) -> Outcome:
        """Launch the ranks, wait for their end, and return how they ended."""
        command = list(self.spec.launcher) or launcher_command(self.spec, pythons)
        stage(self.spec)
        cycle = choose_cycle(self.spec)
        variables = cycle.variables if cycle else {}
        environ = {**launcher_environment(self.spec, login()), **variables}
        started = document(self.spec, pythons.ranks, command, environ, str(cycle or ""))
        write_atomically(self.directory.launched, json.dumps(started, indent=1))
        self._log(f"$ {shlex.join(command)}")
        if cycle:
            self._log(f"Horovod's cycle: {cycle}")
        began = time.monotonic()
        if self.spec.elastic:
            self._begin_elastic(pythons)
        launcher = self._launcher = self._hosts.start(command, self.log, **variables)
        self._stored.record_step("launched")
        self._stored.update(state="running", reason="")
        stopped_by_us = False
        while launcher.poll() is None:
            if self._stop_requested:
                stopped_by_us = True
                self._stop_ranks(launcher)
                break
            time.sleep(POLL_S)
            self._heartbeat()
            self._look_at_elastic()
        status = launcher.wait()
        self._end_elastic()
        if cycle:
            with contextlib.suppress(OSError):  # It costs the next run its cycle alone.
                cycle.keep(self.spec.run_id)
        if stopped_by_us:
            return Outcome(state="stopped", reason=self._why_stopped, exit_code=status)
        if status == 0:
            return Outcome(state="succeeded", exit_code=0)
        self._note_frozen()
        log = self.directory.last_text(failure.log_bytes(self.spec.ranks))
        fault = self._fault(log, time.monotonic() - began)
        spec = self._elastic.judged(self.spec) if self._elastic else self.spec
        return Outcome(state="failed", reason=failure.reason(spec, status, log), exit_code=status, fault=fault)

    def _begin_elastic(self, pythons: Interpreters) -> None:
        """Offer the hosts of this attempt to its launcher, and prepare the search for further ones."""
        self._elastic = ElasticRun(self.spec)
        self._elastic.begin()
        self._joining = Joining(
            run=self._elastic,
            restarts=lambda spec: self._search(spec, self._hosts_of(spec)),
            hosts_of=self._hosts_of,
            directory=self.directory,
            pythons=pythons,
            wanted=self._wanted,
            take_spec=self._widen,
            log_line=self._log,
        )

    def _widen(self, spec: RunSpec) -> None:
        """Store the spec of a live run that gets further hosts: it is the same attempt."""
        write_atomically(self.directory.spec, accepted_spec.accept(spec))
        self.spec, self._hosts = spec, self._hosts_of(spec, self._heartbeat)

    def _look_at_elastic(self) -> None:
        """Record how the ranks have formed anew; have those leave whose host is about to, and search for others."""
        if self._elastic is None or self._joining is None:
            return
        self._note_reformed(self._elastic)
        self._elastic.let_leave(self.spec)
        if not self._stop_requested and self.state.state == "running":
            self._joining.look(self.spec)

    def _note_reformed(self, elastic: ElasticRun) -> None:
        for reformed in elastic.look():
            told = describe(reformed)
            self._log(told)
            self._stored.record_step("reformed", reformed=[*self._stored.course.get("reformed", ()), reformed])
            self._stored.update(hosts=tuple(reformed["hosts"]), reason=told)
            self._notifier.tell(notification.REFORMED, told)

    def _end_elastic(self) -> None:
        """Take note of the last, and end the search for hosts."""
        if self._elastic is not None and self._joining is not None:
            self._joining.end()
            self._note_reformed(self._elastic)
            self._elastic.end()

    def _note_frozen(self) -> None:
        """Log and record what the nodes have seen of ranks that were frozen."""
        seen = [(node.node, each) for node in failure.seen_frozen(self.spec) for each in node.ranks]
        for node, each in seen:
            self._log(f"frozen on {node}: {each}")
        if seen:
            facts = [{"attempt": self.directory.attempt, "node": node, **each.to_document()} for node, each in seen]
            self._stored.record_step("frozen", frozen=[*self._stored.course.get("frozen", ()), *facts])

    def _stop_ranks(self, launcher: subprocess.Popen[bytes]) -> None:
        """End the ranks gracefully, then hard.

        SIGTERM goes to the ranks themselves: horovodrun would kill its SSH clients after 5 s, and leave the ranks.
        """
        grace_s = self.directory.stop_grace_s()
        self._log(f"{self._why_stopped}: SIGTERM to the ranks, {grace_s:g} s until SIGKILL")
        self._stored.update(reason=f"{self._why_stopped}: stopping, {grace_s:g} s of grace")
        if grace_s > 0:
            self._hosts.signal_run(signal.SIGTERM, wait_s=0.0)
            if self.spec.launcher:
                launcher.terminate()
            self._hosts.wait_for(launcher, grace_s)
        if launcher.poll() is None:
            self._log("grace is over: SIGKILL to the ranks")
            self._hosts.kill(launcher)

    def _fail(self, reason: str, exit_code: int | None = None) -> None:
        self._log(f"failed: {reason}")
        self._stored.update(
            state="failed", reason=reason, exit_code=exit_code, last_lines=tuple(self.directory.last_lines())
        )

    def _settle(self, state: State) -> None:
        """Store what the run has cost, and the bound that has stopped it, if one has."""
        reached = state.state == "stopped" and self._why_stopped != STOPPED
        self._meter.write(self._why_stopped if reached else "", ended=True)

    def _log(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a full disk must not end the supervisor while ranks are alive
            self.log.write(f"[supervisor] {line}\n".encode())
            self.log.flush()

    def _keep_bounds(self) -> None:
        """Warn of a bound that is near; at one, stop the run as a user would, unless one has."""
        warning, reached = self._meter.look()
        if warning:
            self._log(warning)
            self._notifier.tell(notification.NEAR_BOUND, warning)
            if self.state.state == "running":
                self._stored.update(reason=warning)
        if reached and not self._stop_requested:
            self._log(reached)
            self._stop_requested, self._why_stopped = True, reached

    def _heartbeat(self) -> None:
        self._keep_bounds()
        if time.time() - self.state.updated >= HEARTBEAT_S:
            self._stored.update()
            if not self._stop_requested:  # at a shutdown none is to begin
                with contextlib.suppress(OSError):
                    scheduler.ensure_running(self.runs)  # it watches this process, as this one does it
            if self._stored.copier.is_due:
                self._stored.write_record()
                self._stored.copier.start()
