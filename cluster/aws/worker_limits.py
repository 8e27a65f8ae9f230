"""The limits on a cluster's workers: alarms that terminate them when idle, after max_hours or when the budget is spent.

They act in AWS, without the laptop. The tasks show them, and do not start what they would terminate.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cluster.aws.client import Aws
from cluster.aws.errors import aws_errors
from cluster.errors import AwsError, DeepcdkError
from cluster.polling import poll
from cluster.terminal.status_line import doing
from cluster.terminal.units import span
from stacks.config import LimitId

if TYPE_CHECKING:
    from types_boto3_cloudwatch import CloudWatchClient

ALARM: Final = "ALARM"
WARN_BELOW_S: Final = 3600.0
WARN_BELOW_SHARE: Final = 0.1
MAX_DATAPOINTS: Final = 1440
"""Maximum number of data points that GetMetricStatistics returns."""
TIMEOUT_S: Final = 600.0
POLL_S: Final = 5.0
_KINDS: Final = {LimitId.IDLE: "idle", LimitId.HOURS: "hours", LimitId.BUDGET: "budget"}

Datapoint = tuple[datetime.datetime, float]
"""Start of a period, and the minimum number of workers during it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limit:
    """One alarm that terminates the workers."""

    kind: str
    """idle, hours or budget."""
    state: str
    """CloudWatch's state: OK, ALARM or INSUFFICIENT_DATA."""
    limit_s: float = 0.0
    """Seconds until it terminates the workers; 0 for the budget."""
    period_s: int = 0
    group: str = ""
    """Auto Scaling group to watch; "" for the budget."""
    queue: str = ""
    """Queue that receives the message that the budget is spent."""
    started: datetime.datetime | None = None
    """For hours: since when there have been workers without interruption; None without workers."""

    def left_s(self, now: datetime.datetime) -> float:
        """Return the seconds left until max_hours; the whole limit while there is no worker. Only for a
        limit of hours.
        """
        passed_s = (now - self.started).total_seconds() if self.started else 0.0
        return max(0.0, self.limit_s - passed_s)

    def line(self, now: datetime.datetime) -> str:
        """Describe the limit and its state in one line. `now` is the current time."""
        if self.kind == "idle":
            now_idle = "; the workers are idle and are being terminated now" if self.state == ALARM else ""
            return (
                "workers are terminated after all of them were idle without a live run for "
                f"{span(self.limit_s)}{now_idle}"
            )
        if self.kind == "budget":
            spent = "; the budget is spent, so new workers are terminated immediately until `fab release`"
            return "workers are terminated when the budget is spent" + (spent if self.state == ALARM else "")
        cap = f"workers are terminated after {span(self.limit_s)}"
        if self.state == ALARM:
            return f"{cap}; the time is over, and the workers are being terminated now"
        if self.started is None:
            return f"{cap} without a pause; the time starts with the first worker"
        end = now + datetime.timedelta(seconds=self.left_s(now))
        return f"{cap}: {span(self.left_s(now))} left, until {end:%H:%M} UTC (since {self.started:%H:%M} UTC)"

    def to_document(self, now: datetime.datetime) -> dict[str, Any]:
        """Return the limit as JSON values: kind, state, limit_s, started and left_s. `now` is the current time.

        `left_s` is None except for the limit of hours, and `limit_s` is None for the budget.
        """
        hours = self.kind == "hours"
        return {
            "kind": self.kind,
            "state": self.state,
            "limit_s": self.limit_s or None,
            "started": self.started.isoformat() if self.started else None,
            "left_s": round(self.left_s(now)) if hours else None,
        }


def parse_alarms(stack: str, alarms: Sequence[Mapping[str, Any]]) -> tuple[Limit, ...]:
    """Parse the answer of DescribeAlarms into limits: idle, hours and budget, in this order. Other
    alarms are left out.
    """
    found = {}
    for alarm in alarms:
        logical_id = alarm["AlarmName"].removeprefix(f"{stack}-").partition("-")[0]
        if logical_id in _KINDS:
            found[logical_id] = _parse(_KINDS[logical_id], alarm)
    return tuple(found[logical_id] for logical_id in _KINDS if logical_id in found)


def _parse(kind: str, alarm: Mapping[str, Any]) -> Limit:
    """Parse one alarm from the answer of DescribeAlarms. `kind` is the kind of limit: idle, hours or budget."""
    if kind == "budget":
        return Limit(kind=kind, state=alarm["StateValue"], queue=_dimension(alarm["Dimensions"], "QueueName"))
    stats = [query["MetricStat"] for query in alarm["Metrics"] if query.get("MetricStat")]
    period_s, periods = int(stats[0]["Period"]), int(alarm["EvaluationPeriods"])
    return Limit(
        kind=kind,
        state=alarm["StateValue"],
        # Idle time is watched for one period more than configured, because the first period may be partial.
        limit_s=float(period_s * (periods - 1 if kind == "idle" else periods)),
        period_s=period_s,
        group=_dimension(stats[0]["Metric"]["Dimensions"], "AutoScalingGroupName"),
    )


def _dimension(dimensions: Sequence[Mapping[str, str]], name: str) -> str:
    return next((each["Value"] for each in dimensions if each["Name"] == name), "")


def parse_datapoints(datapoints: Sequence[Mapping[str, Any]]) -> list[Datapoint]:
    """Parse the unordered answer of GetMetricStatistics. Returns the oldest data point first."""
    return sorted((each["Timestamp"], float(each["Minimum"])) for each in datapoints)


def clock_start(points: Sequence[Datapoint]) -> datetime.datetime | None:
    """Return since when there have been workers without interruption; None if there are none at the end, or no data.

    `points` must be in order of time, as from `parse_datapoints`.
    """
    started: datetime.datetime | None = None
    for moment, minimum in points:
        if not minimum:
            started = None
        elif started is None:
            started = moment
    return started


def resolution_s(span_s: float) -> int:
    """Return the shortest of CloudWatch's periods 60, 300 and 3600 s with which one answer covers `span_s` seconds.

    The span must be less than MAX_DATAPOINTS hours, as max_hours is.
    """
    return next(period_s for period_s in (60, 300, 3600) if span_s / period_s < MAX_DATAPOINTS)


def read(aws: Aws, stack: str) -> tuple[Limit, ...]:
    """Read a stack's limits that terminate workers: idle, hours and budget, as far as it has them. Raises AwsError."""
    with aws_errors(f"reading the limits of {stack}"):
        cloudwatch = aws.client("cloudwatch")
        alarms = cloudwatch.describe_alarms(AlarmNamePrefix=f"{stack}-Guard")["MetricAlarms"]
        return tuple(
            dataclasses.replace(limit, started=_started(cloudwatch, limit)) if limit.kind == "hours" else limit
            for limit in parse_alarms(stack, alarms)
        )


def _started(cloudwatch: CloudWatchClient, limit: Limit) -> datetime.datetime | None:
    """Return since when there have been workers without interruption, from CloudWatch's metrics; None without workers.

    `limit` is the limit of hours. Metrics older than its `limit_s` are not read.
    """
    now, period_s = datetime.datetime.now(datetime.UTC), resolution_s(limit.limit_s)
    answer = cloudwatch.get_metric_statistics(
        Namespace="AWS/AutoScaling",
        MetricName="GroupInServiceInstances",
        Dimensions=[{"Name": "AutoScalingGroupName", "Value": limit.group}],
        StartTime=now - datetime.timedelta(seconds=limit.limit_s),
        EndTime=now + datetime.timedelta(seconds=1),
        Period=period_s,
        Statistics=["Minimum"],
    )
    return clock_start(parse_datapoints(answer["Datapoints"]))


def read_or_explain(aws: Aws, stack: str) -> tuple[Limit, ...] | str:
    """Return the limits, or a sentence on why they cannot be read.

    The limits are in effect anyway, so the task can continue.
    """
    try:
        return read(aws, stack)
    except AwsError as error:
        return f"the limits of the workers are unknown: {error}"


def lines(found: tuple[Limit, ...] | str, now: datetime.datetime) -> list[str]:
    """Return a line on each limit, or the text of `read_or_explain` about unknown limits."""
    return [found] if isinstance(found, str) else [limit.line(now) for limit in found]


def cautions(found: tuple[Limit, ...] | str, now: datetime.datetime) -> list[str]:
    """Return a line on the time that max_hours leaves for a new run, as a warning if it is short; [] without max_hours.

    `found` is the result of `read_or_explain`. If it is a text, it is the only line.
    """
    if isinstance(found, str):
        return [found]
    found_lines = []
    for limit in found:
        if limit.kind != "hours":
            continue
        left_s = limit.left_s(now)
        if left_s < max(WARN_BELOW_S, WARN_BELOW_SHARE * limit.limit_s):
            end = now + datetime.timedelta(seconds=left_s)
            found_lines.append(
                f"warning: max_hours terminates all workers in {span(left_s)} (at {end:%H:%M} UTC), and this run with "
                "them. For the full time, first empty the group: `fab scale --nodes 0`"
            )
        else:
            found_lines.append(f"max_hours leaves this run {span(left_s)}")
    return found_lines


@doing("waiting until no alarm is active", plain=False)
def wait_until_allowed(aws: Aws, stack: str, report: Callable[[str], None]) -> None:
    """Wait until no alarm would immediately terminate new workers. An alarm stays active for minutes after it has
    acted.

    `report` is called once, with a text, if it has to wait. If the limits cannot be read, it does not wait. Raises
    DeepcdkError if the budget is spent, or if an alarm is still active after TIMEOUT_S.
    """
    keys = ""
    for _ in poll(TIMEOUT_S, every_s=POLL_S):
        limits = read_or_explain(aws, stack)
        active = [limit.kind for limit in limits if limit.state == ALARM] if not isinstance(limits, str) else []
        if not active:
            return
        if "budget" in active:
            raise DeepcdkError(
                "the budget is spent: new workers would be terminated immediately",
                remedy="raise budget_usd, run `fab up`, then `fab release`",
            )
        is_first, keys = not keys, _keys(active)
        if is_first:
            report(f"the alarm of {keys} has just terminated all workers; waiting until the alarm is inactive")
    raise DeepcdkError(
        f"the alarm of {keys} is still active after {TIMEOUT_S:.0f} s, and would terminate new workers immediately",
        remedy="repeat the command when `fab status` no longer shows that workers are being terminated now",
    )


def _keys(kinds: Iterable[str]) -> str:
    """Return the configuration keys of limits on idle workers and on hours, joined by "and"."""
    return " and ".join({"idle": "idle_minutes", "hours": "max_hours"}[kind] for kind in kinds)
