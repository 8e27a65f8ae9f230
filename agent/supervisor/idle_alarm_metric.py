"""Publish a metric while a run is live, so that the alarm on idle workers (`stacks/worker_limits.py`) ignores them.

The AWS CLI publishes it with the master's role, which may only publish to the cluster's namespace. If this process or
the master dies, the metric ends and the alarm works as it does without a run.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from agent.errors import describe
from agent.remote.ssh import Completed
from agent.runs.run_directory import ORIGIN_FILE, RunDirectory
from agent.staging.aws_cli import aws_command

METRIC: Final = "LiveRuns"
"""Each live run publishes 1 about once a minute."""
PERIOD_S: Final = 60.0
"""The alarm sums the values of five minutes, so a single failed call has no effect."""
TIMEOUT_S: Final = 50.0
MAX_FAILURES: Final = 3
"""Number of consecutive failures before the run reports them. The shortest alarm acts after ten minutes."""


def command(stack: str, region: str) -> list[str]:
    """Build the command that publishes the metric of the cluster's `stack` once."""
    words = ("--namespace", f"deepcdk/{stack}", "--metric-name", METRIC, "--value", "1", "--unit", "Count")
    return aws_command("cloudwatch", "put-metric-data", *words, region=region, in_background=True)


class LiveMetric:
    """Publish the metric of one run from a separate thread, because the supervisor's steps may take minutes."""

    def __init__(self, directory: RunDirectory, run: Callable[[Sequence[str], float], Completed]) -> None:
        self._directory, self._run = directory, run
        self._has_alarm = True
        self.trouble = ""
        """Why the metric is not published, with advice; "" before MAX_FAILURES consecutive failures."""

    @contextlib.contextmanager
    def published(self) -> Iterator[None]:
        """Publish the metric each minute during a block, while the run's state is live. Failures only set `trouble`.

        Does nothing if the run's origin has no stack or no region.
        """
        ended = threading.Event()
        if words := self._command():
            threading.Thread(target=self._keep_publishing, args=(words, ended), daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    def _command(self) -> list[str]:
        origin = self._directory.document(ORIGIN_FILE) or {}
        stack, region, config = (origin.get(key) for key in ("stack", "region", "config"))
        self._has_alarm = not (isinstance(config, dict) and config.get("idle_minutes") == 0)
        if not (isinstance(stack, str) and isinstance(region, str) and stack and region):
            return []
        return command(stack, region)

    def _keep_publishing(self, words: Sequence[str], ended: threading.Event) -> None:
        failures = 0
        while not ended.is_set():
            # The state is on the shared file system. If it cannot be read, the run is stuck and must not keep workers.
            if self._is_live():
                try:
                    done = self._run(words, TIMEOUT_S)
                except OSError as error:  # no memory for a process, or no rights
                    done = Completed(status=126, output=describe(error))
                failures = failures + 1 if done.status else 0
                self.trouble = _trouble(done) if failures >= MAX_FAILURES and self._has_alarm else ""
            ended.wait(PERIOD_S)

    def _is_live(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            return self._directory.stored_state().is_live
        return False


def _trouble(done: Completed) -> str:
    why = done.last_line
    remedy = "check that the master can reach CloudWatch's endpoint"
    if "AccessDenied" in why:
        remedy = "run `fab up` to grant the master this permission; a permissions boundary must allow it too"
    if done.status == 127:
        remedy = "install the AWS CLI on the master"
    return (
        f"the idle alarm may terminate the workers while this run waits, because its metric {METRIC} is not published: "
        f"{why}; do: {remedy}"
    )
