"""Publish a metric while a run is live: the alarm on idle workers does not count them as idle (`stacks/limits.py`).

With the AWS CLI and the role of the master, which may publish to the cluster's namespace only. If this process or the
master dies, the metric ends, and the alarm works as without a run.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from agent.files.listing import read_regular
from agent.remote.command import Completed
from agent.runs.directory import ORIGIN_FILE, RunDirectory
from agent.spec import json_text
from agent.staging.aws_cli import aws_command

METRIC: Final = "LiveRuns"
"""Each live run adds 1 in each minute."""
PERIOD_S: Final = 60.0
"""The alarm compares the maximum of five minutes, so a call that fails does no harm."""
TIMEOUT_S: Final = 50.0
MAX_FAILURES: Final = 3
"""Failures in a row before the run reports them; the shortest alarm acts after ten minutes."""


def command(stack: str, region: str) -> list[str]:
    """Build the command that publishes the metric once."""
    words = ("--namespace", f"deepcdk/{stack}", "--metric-name", METRIC, "--value", "1", "--unit", "Count")
    return aws_command("cloudwatch", "put-metric-data", *words, region=region, in_background=True)


class LiveMetric:
    """Publish the metric of one run from a thread of its own, since the run's steps may take minutes."""

    def __init__(self, directory: RunDirectory, run: Callable[[Sequence[str], float], Completed]) -> None:
        self._directory, self._run = directory, run
        self.trouble = ""
        """Why CloudWatch does not have the metric, with the remedy, after MAX_FAILURES failures in a row."""

    @contextlib.contextmanager
    def published(self) -> Iterator[None]:
        """Publish the metric each minute during a block; nothing if the run does not name its stack."""
        ended = threading.Event()
        if words := self._command():
            threading.Thread(target=self._keep_publishing, args=(words, ended), daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    def _command(self) -> list[str]:
        try:
            origin = json_text.parse(read_regular(self._directory.path / ORIGIN_FILE))
            stack, region = str(origin["stack"]), str(origin["region"])
        except (OSError, ValueError, KeyError, TypeError):
            return []
        return command(stack, region) if stack else []

    def _keep_publishing(self, words: Sequence[str], ended: threading.Event) -> None:
        failures = 0
        while not ended.is_set():
            # The state is on the shared file system: without it the run is stuck, and does not hold its workers.
            if self._is_live():
                done = self._run(words, TIMEOUT_S)
                failures = failures + 1 if done.status else 0
                self.trouble = _trouble(done) if failures >= MAX_FAILURES else ""
            ended.wait(PERIOD_S)

    def _is_live(self) -> bool:
        with contextlib.suppress(OSError, ValueError):
            return self._directory.stored_state().is_live
        return False


def _trouble(done: Completed) -> str:
    why = (done.output.strip().splitlines() or [f"status {done.status}"])[-1]
    denied = "`fab up` gives the master this permission, which a permissions boundary must not take away"
    remedy = denied if "AccessDenied" in why else "let the master reach CloudWatch's endpoint"
    return (
        f"the idle alarm may terminate the workers while this run waits, since its metric {METRIC} is not published: "
        f"{why}; do: {remedy}"
    )
