"""Supervise one run on the master: its attempts and restarts, its stored files and notifications, and the clean-up."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import signal
import time
from collections.abc import Callable, Sequence
from typing import IO, Any, Final

from agent.errors import SpecError, describe
from agent.remote.ssh import Completed, execute
from agent.runs import run_log, run_record
from agent.runs.node_claims import Runs
from agent.runs.run_directory import RunDirectory
from agent.runs.stored_state import State, SupersededError
from agent.spec.nodes import Node
from agent.spec.resumed_spec import resume_point
from agent.spec.run import RunSpec
from agent.spec.run_states import STOP_GRACE_S
from agent.supervisor import launcher_messages, notification, prepare_hosts, rank_permissions, then_stop
from agent.supervisor.attempt import ON_REQUEST, Attempt, StopRequest
from agent.supervisor.cost_meter import Meter
from agent.supervisor.idle_alarm_metric import LiveMetric
from agent.supervisor.lost_supervisor import LEFT, WANTED, LostSupervisor, document_of
from agent.supervisor.notification import Notifier
from agent.supervisor.regular_work import Heartbeat
from agent.supervisor.restart import MEMORY_AFTER, Outcome, Restarts, describe_restart
from agent.supervisor.resume_or_remove import rewrite
from agent.supervisor.run_writer import RunWriter
from agent.supervisor.worker_replacement import REPLACED, HostReplacements, Replacement, ReplacementLog, WorkerGroup

SHUTS_DOWN: Final = "the supervisor was terminated, for example because the master shut down; the run continues"


class Supervisor:
    """The supervisor of one run, from its preparation to its final state. It has its own process."""

    def __init__(
        self,
        runs: Runs,
        spec: RunSpec,
        log: IO[bytes],
        run: Callable[[Sequence[str], float], Completed] = execute,
        *,
        before: LostSupervisor | None = None,
    ) -> None:
        """`before` is the progress of a lost supervisor of this run. This one then begins with a restart."""
        self.runs, self.log, self._run = runs, log, run
        self.directory: RunDirectory = runs[spec.run_id]
        self._stop = StopRequest()
        self._meter = Meter(self.directory)
        self._live_metric = LiveMetric(self.directory, run)
        self._notifier = Notifier(spec.notify, spec.run_id, self.directory.path, self._log)
        self._before = before
        state = dataclasses.replace(State.starting(spec), reason="preparing the nodes")
        if before:
            state = dataclasses.replace(state, started=before.started, reason=before.reason)
        self._restarts: list[dict[str, Any]] = [*before.restarts] if before else []
        self._wanted = before.wanted if before else len(spec.hosts)
        self._left: dict[str, Node] = {**before.left} if before else {}
        """Hosts of earlier attempts that the current attempt does not use, by name."""
        self._cleared: set[str] = set()
        self._told_waiting = -1
        self._stored = RunWriter(
            self.directory,
            state,
            run=run,
            log_line=self._log,
            settle=self._settle,
            earlier=before.course if before else None,
        )
        self._heartbeat = Heartbeat(
            runs=runs,
            directory=self.directory,
            stored=self._stored,
            stop=self._stop,
            meter=self._meter,
            live_metric=self._live_metric,
            notifier=self._notifier,
            log_line=self._log,
            report_replaced=self._report_replaced,
        )
        self._attempt = self._next_attempt(spec)

    @property
    def state(self) -> State:
        """Return the state that was stored last."""
        return self._stored.state

    def _next_attempt(self, spec: RunSpec) -> Attempt:
        """Set the cost meter's limits and price for a spec; return a new attempt on the spec's hosts."""
        self._meter.take(spec)
        return Attempt(
            spec=spec,
            runs=self.runs,
            stored=self._stored,
            stop=self._stop,
            log=self.log,
            log_line=self._log,
            execute=self._run,
            on_poll=functools.partial(self._heartbeat.poll, spec),
            may_be_followed=len(self._restarts) < spec.restarts,
            cleared=self._cleared,
        )

    def request_stop(self, *_: object) -> None:
        """Request a graceful stop. This is the handler of SIGTERM."""
        self._stop.ask(ON_REQUEST)

    def supervise(self) -> State:
        """Supervise the run until its final state, store this state, and return it.

        An error results in `failed`. It is raised after that unless it is an OSError or a SpecError. When the master
        shuts down, the run is left to its next supervisor, and the state stays live. If another master has taken over
        the run, this supervisor writes nothing more and changes nothing on the hosts, because they belong to the other
        master. The returned state is then `failed`, but it is not stored.
        """
        try:
            with self._live_metric.published():
                return self._carry_through()
        except SupersededError as error:
            self._attempt.abandon()
            self.runs.release(self._attempt.spec.run_id)  # on this master
            return dataclasses.replace(self.state, state="failed", reason=str(error))

    def _carry_through(self) -> State:
        if not self._before:
            self._stored.record_step("started", **{WANTED: self._wanted})
        try:
            rank_permissions.open_to_ranks(self.directory, self.runs.live)
            outcome = self._take_up(self._before) if self._before else self._attempt.carry_out()
            while outcome.fault and self._restart(outcome):
                outcome = self._attempt.carry_out().without_repeated_fault(self._restarts)
            if self._is_left(outcome):
                self._log(SHUTS_DOWN)
                self._stored.update(reason=SHUTS_DOWN)
                self._finish_telling()
                self._stored.is_ours = False
            else:
                self._end(outcome)
        except SupersededError:
            raise
        except Exception as error:  # Always store a final state. The traceback is in the log.
            is_expected = isinstance(error, OSError | SpecError)
            internal = f"an internal error, {type(error).__name__}: {error}; `fab logs` shows its traceback"
            reason = describe(error) if is_expected else internal
            self._end(Outcome(state="failed", reason=reason))
            if not is_expected:
                raise
        finally:
            if self._stored.is_ours:
                self._clean_up()
        return self.state

    def _is_left(self, outcome: Outcome) -> bool:
        """Return whether to leave the run to its next supervisor, as in a shutdown of the master.

        This needs a SIGTERM without a stop request (`fab stop` writes one), and a run that has not succeeded and may
        continue.
        """
        asked = self._stop.why == ON_REQUEST
        return asked and outcome.state != "succeeded" and self.directory.may_continue

    def _clean_up(self) -> None:
        """Clean up after the run: notify the user, remove secrets, stop the workers on request, and release the nodes.

        First kills the remaining processes on hosts of earlier attempts and, unless the run has succeeded, on all its
        hosts.
        """
        hosts = self._attempt.hosts
        hosts.end_preparation()
        if self.state.state != "succeeded":
            hosts.signal_run(signal.SIGKILL, wait_s=5.0, ranks_only=self.state.is_live)
        if left := list(self._left.values()):
            hosts.signal_run(signal.SIGKILL, wait_s=5.0, hosts=left)
        self._notifier.tell_end(self.state)
        prepare_hosts.remove_secrets(self._attempt.spec, hosts, left, self.runs, is_over=not self.state.is_live)
        self._stop_workers()
        self._finish_telling()
        self.runs.release(self._attempt.spec.run_id)

    def _take_up(self, before: LostSupervisor) -> Outcome:
        """Terminate the processes of the lost supervisor `before`; return the outcome of its attempt.

        Ranks get SIGTERM and the grace period of a stop, so that they can write a checkpoint, then SIGKILL. The
        launcher is killed with them.
        """
        # The remaining ranks work well, so they get SIGTERM first. Ranks of a recipe then write a checkpoint.
        self._attempt.hosts.signal_run(signal.SIGTERM, wait_s=STOP_GRACE_S)
        self._attempt.hosts.signal_run(signal.SIGKILL, wait_s=5.0, ranks_only=False)
        return before.outcome(self.directory, self._attempt.spec)

    def _restart(self, outcome: Outcome) -> bool:
        """Kill the ranks that are left, wait for hosts that answer, and set up the next attempt on them.

        The restart is recorded and logged, and the user is notified. Return whether the next attempt is set up: False
        if there are too few hosts, if the run is stopped meanwhile, or if the spec cannot be placed on them.
        """
        fault = outcome.fault
        last, number, began = self._attempt, len(self._restarts) + 1, time.time()
        title = describe_restart(number, last.spec.restarts, fault)
        self._stored.update(state="starting", reason=title, exit_code=None)
        answering = [host for host in last.spec.hosts if host.instance_id not in last.silent]
        last.hosts.signal_run(signal.SIGKILL, wait_s=5.0, hosts=[None, *answering])
        search = Restarts(
            spec=last.spec,
            wanted=self._wanted,
            hosts=last.hosts,
            silent=last.silent,
            runs=self.runs,
            is_stopped=self._stop.is_made,
            set_reason=self._report_waiting,
            log_line=self._log,
            replacements=self._replacements(time.time()),
        )
        spec = search.claim_hosts(title)
        self._report_replaced()
        if spec is None:
            return False
        waited_s, hosts = round(time.time() - began, 1), [host.name for host in spec.hosts]
        memory = {} if outcome.memory_after_s is None else {MEMORY_AFTER: outcome.memory_after_s}
        self._restarts.append({"time": began, "for": fault, "waited_s": waited_s, "hosts": hosts, **memory})
        names = {host.name for host in spec.hosts}
        left = {host.name: host for host in last.spec.hosts} | self._left
        self._left = {name: host for name, host in left.items() if name not in names}
        self.directory.discard(self.directory.preflight)
        # Store the hosts before the spec: then a supervisor that takes over in between knows all hosts with ranks.
        self._stored.record_step("restarted", restarts=self._restarts, **{LEFT: document_of(self._left)})
        rewrite(self.directory, spec)
        self._attempt = self._next_attempt(spec)
        # A host that was unreachable may still have ranks of the previous attempt.
        self._attempt.hosts.signal_run(signal.SIGKILL, wait_s=5.0)
        self._log(f"{title}: {resume_point(spec, run_record.checkpoints(self.directory))}, {spec.placed}")
        self._stored.update(reason=f"{title}: preparing the nodes", hosts=tuple(hosts))
        self._notifier.tell(notification.RESTARTED, f"{title}, {spec.placed}")
        return True

    def _replacements(self, since: float) -> HostReplacements:
        """Return the replacements of this run's hosts since a time (seconds since 1970).

        Hosts of earlier attempts are included.
        """
        spec = self._attempt.spec
        ids = {host.instance_id for host in (*spec.hosts, *self._left.values())}
        group = WorkerGroup(settings=spec.replacements, run=self._run)
        return HostReplacements(group=group, log=ReplacementLog(), hosts=frozenset(ids), since=since)

    def _report_replaced(self) -> None:
        """Log and record which hosts the master replaced or could not replace, if that is not recorded yet."""
        known = self._stored.course.get(REPLACED, [])
        found = [dataclasses.asdict(each) for each in self._replacements(self.state.started).found()]
        if new := [each for each in found if each not in known]:
            for each in new:
                self._log(str(Replacement(**each)))
            self._stored.record_step("replaced", **{REPLACED: [*known, *new]})

    def _end(self, outcome: Outcome) -> None:
        """Store the final state for an outcome. For a failure, add the number of restarts and the log's last lines.

        The state is `stopped` if a stop was requested while the run waited for nodes for a restart.
        """
        self._report_replaced()
        state, reason, lines = outcome.state, outcome.reason, tuple[str, ...]()
        if outcome.fault and self._stop.is_made():  # while it waited for nodes
            state, reason = "stopped", self._stop.why
        elif state == "failed":
            made = len(self._restarts)
            reason += f" (after {made} restart{'s' if made > 1 else ''})" if made else ""
            lines = self._last_lines(reason)
            self._log(f"failed: {reason}")
        self._stored.update(state=state, reason=reason, exit_code=outcome.exit_code, last_lines=lines)

    def _report_waiting(self, reason: str) -> None:
        """Store the reason why a restart waits for nodes. Notify the user of it once for each restart.

        Hosts that the master replaced, or could not replace, are recorded and added to the reason.
        """
        self._report_replaced()
        ids = {host.instance_id for host in self._attempt.spec.hosts}
        lost = [each for each in self._stored.course.get(REPLACED, []) if each["instance_id"] in ids]
        reason = "; ".join([reason, *(str(Replacement(**each)) for each in lost)])
        if self._told_waiting != len(self._restarts):
            self._told_waiting = len(self._restarts)
            self._notifier.tell(notification.WAITING, reason)
        self._stored.update(reason=reason)

    def _stop_workers(self) -> None:
        """Stop the workers if this or an earlier run requested it (`--then-stop`), and no run is live or queued.

        The result is logged and recorded. The user is notified if the workers could not be stopped.
        """
        spec = self._attempt.spec
        with contextlib.suppress(OSError):
            if told := then_stop.stop_workers(self.runs, spec.stop_policy, by=spec.run_id, run=self._run):
                self._log(told)
                self._stored.record_step("workers", workers=told)
                self._stored.write_record()
                if told.startswith(then_stop.NOT_STOPPED):
                    self._notifier.tell(notification.FAILED, told)

    def _finish_telling(self) -> None:
        """Wait until all notifications are sent; record those that failed."""
        self._notifier.finish()
        if failures := list(self._notifier.failures):
            self._stored.record_step("told", notify=failures)
            self._stored.write_record()

    def _last_lines(self, reason: str) -> tuple[str, ...]:
        """Return the last lines of the log, or of the rank that exited first if the reason for the failure names it."""
        size = launcher_messages.log_bytes(self._attempt.spec.ranks)
        text = run_log.last_text(self.directory.log, size)
        first = launcher_messages.first_ended(launcher_messages.last_attempt(text))
        named = first[0] if first and f"rank {first[0]} on " in reason else None
        return tuple(run_log.last_lines(self.directory.log, rank=named, size=size, text=text))

    def _settle(self, state: State) -> None:
        """Write the time and cost of the run to spent.json, and the limit that stopped it, if one did.

        `state` is the final state.
        """
        reached = state.state == "stopped" and self._stop.why != ON_REQUEST
        self._meter.write(self._stop.why if reached else "", ended=True)

    def _log(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a full disk must not end the supervisor while ranks are alive
            self.log.write(f"[supervisor] {line}\n".encode())
            self.log.flush()
