"""The regular work of a supervisor while its run prepares, waits or trains, such as checks of limits."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from typing import Final

from agent.runs import liveness, run_log
from agent.runs.node_claims import Runs
from agent.runs.run_directory import RunDirectory
from agent.spec.run import RunSpec
from agent.supervisor import notification
from agent.supervisor.attempt import StopRequest
from agent.supervisor.cost_meter import Meter
from agent.supervisor.idle_alarm_metric import METRIC, LiveMetric
from agent.supervisor.notification import Notifier
from agent.supervisor.run_writer import RunWriter

HEARTBEAT_S: Final = 5.0


@dataclasses.dataclass(kw_only=True)
class Heartbeat:
    """The regular work of one supervisor. `report_replaced` records which hosts the master has replaced."""

    runs: Runs
    directory: RunDirectory
    stored: RunWriter
    stop: StopRequest
    meter: Meter
    live_metric: LiveMetric
    notifier: Notifier
    log_line: Callable[[str], None]
    report_replaced: Callable[[], None]
    _beat: float = dataclasses.field(default_factory=time.monotonic)
    """When the last heartbeat was, by the monotonic clock."""

    def poll(self, spec: RunSpec) -> None:
        """Act on limits that are near or reached, and on failures to publish the metric.

        Every HEARTBEAT_S, also record that this supervisor is alive, report replaced hosts, store the run's claim again
        if the database lost it, shorten a large log, start a missing scheduler, and update the copy in the bucket if it
        is due. `spec` is that of the current attempt. Raises SupersededError if another master has taken over the run.
        """
        self._keep_bounds()
        self._report_unpublished()
        if time.monotonic() - self._beat >= HEARTBEAT_S:
            self._beat = time.monotonic()
            self.stored.check_ours()
            liveness.beat(spec.run_id)
            self.report_replaced()
            with contextlib.suppress(OSError):
                self.runs.reclaim(spec, self.stored.state)
            with contextlib.suppress(OSError):
                run_log.cut(self.directory.log)
            if not self.stop.is_made():  # no scheduler may start while the master shuts down
                from agent.supervisor import scheduler  # Not at the top: the ranks start sooner.

                with contextlib.suppress(OSError):
                    scheduler.ensure_running(self.runs)  # the scheduler and this process watch each other
            if self.stored.copier.is_due:
                self.stored.write_record()
                self.stored.copier.start()

    def _keep_bounds(self) -> None:
        """Warn if a limit is near: in the log, with a notification, and in the state of a running run.

        If a limit is reached, request a graceful stop, unless a stop was requested before.
        """
        warning, reached = self.meter.look()
        if warning:
            self.log_line(warning)
            self.notifier.tell(notification.NEAR_BOUND, warning)
            if self.stored.state.state == "running":
                self.stored.update(reason=warning)
        if reached and not self.stop.is_made():
            self.log_line(reached)
            self.stop.ask(reached)

    def _report_unpublished(self) -> None:
        """Log and record it if the run's metric is no longer published, or is published again.

        Do nothing without a change. The reason in the state of a running run also reports it.
        """
        trouble, reported = self.live_metric.trouble, str(self.stored.course.get("unpublished", ""))
        if bool(trouble) == bool(reported):
            return
        self.log_line(f"warning: {trouble}" if trouble else f"the metric {METRIC} is published again")
        self.stored.record_step("unpublished" if trouble else "published", unpublished=trouble)
        if self.stored.state.state == "running" and (trouble or self.stored.state.reason == reported):
            self.stored.update(reason=trouble)
