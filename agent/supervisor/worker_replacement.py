"""Replace workers through their Auto Scaling group: the AWS calls, and the log of replacements on the master's disk.

The master marks a worker as unhealthy (SetInstanceHealth). Its role allows this for the worker group only. The group
terminates the worker and launches another one. The log is in the login user's home, so ranks cannot write to it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from agent.errors import describe
from agent.files.atomic_write import open_to_append
from agent.remote.ssh import Completed
from agent.spec import untrusted_json
from agent.spec.nodes import Node
from agent.spec.run_limits import Replacements
from agent.staging.aws_cli import aws_command

LOG: Final = ".deepcdk/replacements.jsonl"
"""Path in the login user's home, on the master's own disk."""
REPLACED: Final = "replaced"
"""Key in a run's timeline: the replacements of its hosts."""
LIMIT_S: Final = 3600.0
TIMEOUT_S: Final = 60.0
IN_SERVICE: Final = "InService"
HEALTHY: Final = "healthy"
_LAUNCH: Final = "Launching a new EC2 instance"
_MAX_TEXT: Final = 300

Execute = Callable[[Sequence[str], float], Completed]


class AwsCallError(RuntimeError):
    """Report that AWS rejected a call of the master, or did not answer."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replacement:
    """A worker that the master replaced or tried to replace."""

    time: float
    """Seconds since 1970."""
    node: str
    instance_id: str
    reason: str
    """The fault of the worker."""
    trouble: str = ""
    """Why it is not replaced; "" if it is."""

    def __str__(self) -> str:
        """Return the replacement as text: `worker4 (i-1) is replaced: it has not answered for 3 min`."""
        done = f"is not replaced ({self.trouble})" if self.trouble else "is replaced"
        return f"{self.node} ({self.instance_id}) {done}: {self.reason}"


class ReplacementLog:
    """The replacements of this master, oldest first. Only the scheduler adds to them."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or Path.home() / LOG

    def read(self, since: float = 0.0) -> list[Replacement]:
        """Return the replacements since a time (seconds since 1970), oldest first.

        Malformed lines are skipped, as after a crash. Return [] if there are none, or if the log cannot be read.
        """
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        found = []
        for line in filter(None, lines):
            with contextlib.suppress(ValueError, TypeError):
                found.append(Replacement(**untrusted_json.parse(line)))
        return [each for each in found if each.time >= since]

    def add(self, replacement: Replacement) -> None:
        """Append a replacement. Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open_to_append(self._path, buffering=0) as file:
            # The first newline ends a line that a crash has cut off.
            file.write(b"\n" + json.dumps(dataclasses.asdict(replacement)).encode() + b"\n")

    def made(self, now: float) -> int:
        """Return how many workers were replaced in the hour before `now` (seconds since 1970).

        Replacements that failed do not count.
        """
        return sum(not each.trouble and now - each.time < LIMIT_S for each in self.read())


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerGroup:
    """The Auto Scaling group of the workers, as the master may see and change it."""

    settings: Replacements
    run: Execute

    def members(self) -> dict[str, bool]:
        """Return for each instance of the group, by id, whether it is in service and healthy. Raises AwsCallError.

        While the group does not replace unhealthy instances, for example during a rolling update, all instances count
        as not in service.
        """
        instance = "Instances[].[InstanceId,LifecycleState,HealthStatus]"
        query = f"AutoScalingGroups[0].[{instance},SuspendedProcesses[].ProcessName]"
        name = ("--auto-scaling-group-names", self.settings.group)
        answer = self._call("describe-auto-scaling-groups", *name, "--query", query)
        try:
            instances, suspended = answer
            works = not {"HealthCheck", "ReplaceUnhealthy", "Terminate"} & set(map(str, suspended or ()))
            return {
                str(instance_id): works and state == IN_SERVICE and str(health).lower() == HEALTHY
                for instance_id, state, health in instances
            }
        except (TypeError, ValueError):
            raise AwsCallError(
                f"AWS lists no instances of the workers' Auto Scaling group {self.settings.group}; check in the EC2 "
                "console whether it was deleted"
            ) from None

    def mark_unhealthy(self, node: Node) -> None:
        """Make the group replace a worker, without waiting for the replacement. Raises AwsCallError.

        A grace period of the group is ignored. It is for booting nodes, but a lost worker has answered before.
        """
        words = ("--instance-id", node.instance_id, "--health-status", "Unhealthy", "--no-should-respect-grace-period")
        self._call("set-instance-health", *words)

    def launch_failure(self, since: float) -> str:
        """Return why the group's latest launch failed; "" if it did not, or if AWS does not answer.

        A launch before `since` (seconds since 1970) does not count.
        """
        name = ("--auto-scaling-group-name", self.settings.group, "--max-items", "20")
        query = "Activities[].[StartTime,Description,StatusCode,StatusMessage]"
        try:
            activities = self._call("describe-scaling-activities", *name, "--query", query)
            for start, description, status, message in activities:
                if str(description).startswith(_LAUNCH):
                    failed = status == "Failed" and _seconds(str(start)) >= since
                    return str(message or "AWS gave no reason")[:_MAX_TEXT] if failed else ""
        except (AwsCallError, TypeError, ValueError):
            return ""
        return ""

    def _call(self, *words: str) -> Any:
        command = aws_command(
            "autoscaling", *words, "--output", "json", region=self.settings.region, in_background=True
        )
        try:
            done = self.run(command, TIMEOUT_S)
        except OSError as error:
            raise AwsCallError(describe(error)) from None
        if done.status:
            what = done.last_line if done.output.strip() else f"the AWS CLI exited with status {done.status}"
            raise AwsCallError(what[:_MAX_TEXT])
        try:
            return json.loads(done.output or "null")
        except ValueError:
            raise AwsCallError(
                f"`aws autoscaling {words[0]}` printed no JSON: {done.output.strip()[-100:]!r}; run it on the master "
                "to find the cause"
            ) from None


def _seconds(moment: str) -> float:
    """Convert a timestamp of AWS to seconds since 1970; UTC if it has no time zone. Raises ValueError."""
    found = datetime.datetime.fromisoformat(moment)
    return (found if found.tzinfo else found.replace(tzinfo=datetime.UTC)).timestamp()


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostReplacements:
    """The replacements of one run's hosts. Its supervisor uses them while it waits for nodes."""

    group: WorkerGroup
    log: ReplacementLog
    hosts: frozenset[str]
    """Instance ids of the hosts of this attempt and of earlier ones."""
    since: float
    """Seconds since 1970."""

    def found(self) -> list[Replacement]:
        """Return the replacements of the hosts in `hosts` since the time `since`, also failed ones, oldest first."""
        return [each for each in self.log.read(self.since) if each.instance_id in self.hosts]

    def latest(self) -> float:
        """Return when the group last began to replace one of the hosts, seconds since 1970; 0 if it never did."""
        return max((each.time for each in self.found() if not each.trouble), default=0.0)

    def obstacle(self) -> str:
        """Return why no replacement will come, or "" if one may come.

        The reason is that the latest replacement failed, or that the group's latest launch since `since` failed. The
        launches are queried from AWS. If AWS does not answer, they are not considered.
        """
        found = self.found()
        if found and found[-1].trouble:
            return found[-1].trouble
        return self.group.launch_failure(self.since) if self.group.settings else ""
