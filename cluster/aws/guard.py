"""The alarms that terminate a cluster's workers, when idle, after max_hours or when the budget is spent; the time left.

They act in AWS, without the laptop, which only shows them and does not start what they would terminate.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cluster.aws.client import Aws, aws_errors
from cluster.errors import AwsError
from cluster.terminal.units import span
from stacks.config import GuardId

if TYPE_CHECKING:
    from types_boto3_cloudwatch import CloudWatchClient

ALARM: Final = "ALARM"
WARN_BELOW_S: Final = 3600.0
WARN_BELOW_SHARE: Final = 0.1
MAX_DATAPOINTS: Final = 1440
"""Maximum that GetMetricStatistics returns."""
_KINDS: Final = {GuardId.IDLE: "idle", GuardId.HOURS: "hours", GuardId.BUDGET: "budget"}

Datapoint = tuple[datetime.datetime, float]
"""Start of a period, and the minimum of workers during it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bound:
    """One alarm that terminates the workers."""

    kind: str
    """idle, hours or budget."""
    state: str
    """CloudWatch's: OK, ALARM or INSUFFICIENT_DATA."""
    limit_s: float = 0.0
    """After this time it terminates the workers; 0 for the budget."""
    period_s: int = 0
    group: str = ""
    """Auto Scaling group whose metrics it watches; empty for the budget."""
    queue: str = ""
    """Queue that receives the message that the budget is spent."""
    started: datetime.datetime | None = None
    """For hours: start of the time without a break in which there were workers; None without workers."""

    def left_s(self, now: datetime.datetime) -> float:
        """Return the seconds left until max_hours; the whole limit while there is no worker."""
        passed_s = (now - self.started).total_seconds() if self.started else 0.0
        return max(0.0, self.limit_s - passed_s)

    def line(self, now: datetime.datetime) -> str:
        """Return one line on what it does, and when."""
        if self.kind == "idle":
            now_idle = "; idle, and being terminated now" if self.state == ALARM else ""
            return f"workers are terminated after all were idle for {span(self.limit_s)}{now_idle}"
        if self.kind == "budget":
            spent = "; it is spent, and new workers are terminated at once until `fab release`"
            return "workers are terminated when the budget is spent" + (spent if self.state == ALARM else "")
        cap = f"workers are terminated after {span(self.limit_s)}"
        if self.state == ALARM:
            return f"{cap}; that time is over, and they are being terminated now"
        if self.started is None:
            return f"{cap} without a break; the time starts with the first one"
        end = now + datetime.timedelta(seconds=self.left_s(now))
        return f"{cap}: {span(self.left_s(now))} left, until {end:%H:%M} UTC (since {self.started:%H:%M} UTC)"

    def to_document(self, now: datetime.datetime) -> dict[str, Any]:
        """Return the alarm as JSON values."""
        hours = self.kind == "hours"
        return {
            "kind": self.kind,
            "state": self.state,
            "limit_s": self.limit_s or None,
            "started": self.started.isoformat() if self.started else None,
            "left_s": round(self.left_s(now)) if hours else None,
        }


def parse_alarms(stack: str, alarms: Sequence[Mapping[str, Any]]) -> tuple[Bound, ...]:
    """Parse the answer of DescribeAlarms: idle, hours and budget, in this order; other alarms are left out."""
    found = {}
    for alarm in alarms:
        logical_id = alarm["AlarmName"].removeprefix(f"{stack}-").partition("-")[0]
        if logical_id in _KINDS:
            found[logical_id] = _parse(_KINDS[logical_id], alarm)
    return tuple(found[logical_id] for logical_id in _KINDS if logical_id in found)


def _parse(kind: str, alarm: Mapping[str, Any]) -> Bound:
    if kind == "budget":
        return Bound(kind=kind, state=alarm["StateValue"], queue=_dimension(alarm["Dimensions"], "QueueName"))
    stats = [query["MetricStat"] for query in alarm["Metrics"] if query.get("MetricStat")]
    period_s, periods = int(stats[0]["Period"]), int(alarm["EvaluationPeriods"])
    return Bound(
        kind=kind,
        state=alarm["StateValue"],
        # Idle time is watched for one period more than configured, since the first one may be partial.
        limit_s=float(period_s * (periods - 1 if kind == "idle" else periods)),
        period_s=period_s,
        group=_dimension(stats[0]["Metric"]["Dimensions"], "AutoScalingGroupName"),
    )


def _dimension(dimensions: Sequence[Mapping[str, str]], name: str) -> str:
    return next((each["Value"] for each in dimensions if each["Name"] == name), "")


def parse_datapoints(datapoints: Sequence[Mapping[str, Any]]) -> list[Datapoint]:
    """Parse the unordered answer of GetMetricStatistics; oldest first."""
    return sorted((each["Timestamp"], float(each["Minimum"])) for each in datapoints)


def clock_start(points: Sequence[Datapoint]) -> datetime.datetime | None:
    """Return the start of the time without a break in which there were workers; None without workers or data."""
    started: datetime.datetime | None = None
    for moment, minimum in points:
        if not minimum:
            started = None
        elif started is None:
            started = moment
    return started


def resolution_s(span_s: float) -> int:
    """Return the finest period in which CloudWatch covers this time in one answer."""
    return next(period_s for period_s in (60, 300, 3600) if span_s / period_s < MAX_DATAPOINTS)


def read(aws: Aws, stack: str) -> tuple[Bound, ...]:
    """Read the bounds of a stack. Raises AwsError."""
    with aws_errors(f"reading the bounds of {stack}"):
        cloudwatch = aws.client("cloudwatch")
        alarms = cloudwatch.describe_alarms(AlarmNamePrefix=f"{stack}-Guard")["MetricAlarms"]
        return tuple(
            dataclasses.replace(bound, started=_started(cloudwatch, bound)) if bound.kind == "hours" else bound
            for bound in parse_alarms(stack, alarms)
        )


def _started(cloudwatch: CloudWatchClient, bound: Bound) -> datetime.datetime | None:
    now, period_s = datetime.datetime.now(datetime.UTC), resolution_s(bound.limit_s)
    answer = cloudwatch.get_metric_statistics(
        Namespace="AWS/AutoScaling",
        MetricName="GroupInServiceInstances",
        Dimensions=[{"Name": "AutoScalingGroupName", "Value": bound.group}],
        StartTime=now - datetime.timedelta(seconds=bound.limit_s),
        EndTime=now + datetime.timedelta(seconds=1),
        Period=period_s,
        Statistics=["Minimum"],
    )
    return clock_start(parse_datapoints(answer["Datapoints"]))


def read_or_explain(aws: Aws, stack: str) -> tuple[Bound, ...] | str:
    """Return the bounds, or why they cannot be read: they hold in any case, so that is no reason to end a task."""
    try:
        return read(aws, stack)
    except AwsError as error:
        return f"the limits of the workers are not known: {error}"


def lines(found: tuple[Bound, ...] | str, now: datetime.datetime) -> list[str]:
    """Return a line on each bound."""
    return [found] if isinstance(found, str) else [bound.line(now) for bound in found]


def cautions(found: tuple[Bound, ...] | str, now: datetime.datetime) -> list[str]:
    """Return lines on how long a new run may take, with a warning if that is short."""
    if isinstance(found, str):
        return [found]
    found_lines = []
    for bound in found:
        if bound.kind != "hours":
            continue
        left_s = bound.left_s(now)
        if left_s < max(WARN_BELOW_S, WARN_BELOW_SHARE * bound.limit_s):
            end = now + datetime.timedelta(seconds=left_s)
            found_lines.append(
                f"warning: max_hours terminates all workers in {span(left_s)} (at {end:%H:%M} UTC), and this "
                "run with them; for the full time empty the group first: `fab scale --nodes 0`"
            )
        else:
            found_lines.append(f"max_hours leaves this run {span(left_s)}")
    return found_lines
