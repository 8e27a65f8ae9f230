"""What bounds a deployed cluster's workers: the alarms of its stack, and the time that they leave.

The bounds hold without the laptop; here they are only told, and what they would undo is not begun.
"""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from cluster.aws.client import Aws, aws_errors
from cluster.errors import AwsError, DeepcdkError
from cluster.terminal.status_line import doing
from cluster.terminal.units import span
from stacks.config import GuardId

ALARM: Final = "ALARM"
NEAR_S: Final = 3600.0
NEAR_SHARE: Final = 0.1
PATIENCE_S: Final = 600.0
POLL_S: Final = 5.0
MOST_DATAPOINTS: Final = 1440
"""What GetMetricStatistics returns at most."""
_KINDS: Final = {GuardId.IDLE: "idle", GuardId.HOURS: "hours", GuardId.BUDGET: "budget"}

Datapoint = tuple[datetime.datetime, float]
"""When a period began, and how many workers there were at least during it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bound:
    """One alarm that ends the workers."""

    kind: str
    """idle, hours or budget."""
    state: str
    """CloudWatch's: OK, ALARM or INSUFFICIENT_DATA."""
    limit_s: float = 0.0
    """How long it lets the workers be; 0 for the budget."""
    period_s: int = 0
    group: str = ""
    """Auto Scaling group whose metrics it looks at; empty for the budget."""
    queue: str = ""
    """Queue that holds the word of the spent budget."""
    started: datetime.datetime | None = None
    """For hours: since when there have been workers without a break; None without any."""

    def left_s(self, now: datetime.datetime) -> float:
        """Return the seconds that the hours leave; all of them while there is no worker."""
        passed_s = (now - self.started).total_seconds() if self.started else 0.0
        return max(0.0, self.limit_s - passed_s)

    def line(self, now: datetime.datetime) -> str:
        """Say what it does and when, in one line."""
        if self.kind == "idle":
            now_idle = "; idle, and being ended now" if self.state == ALARM else ""
            return f"workers end when all were idle for {span(self.limit_s)}{now_idle}"
        if self.kind == "budget":
            spent = "; it is spent, and workers end at once until `fab release`"
            return "workers end when the budget is spent" + (spent if self.state == ALARM else "")
        cap = f"workers end after {span(self.limit_s)}"
        if self.state == ALARM:
            return f"{cap}; that time is over, and they are being ended now"
        if self.started is None:
            return f"{cap} without a break; the clock begins with the first one"
        end = now + datetime.timedelta(seconds=self.left_s(now))
        return f"{cap}: {span(self.left_s(now))} left, until {end:%H:%M} UTC (since {self.started:%H:%M} UTC)"

    def to_document(self, now: datetime.datetime) -> dict[str, Any]:
        """Return it as JSON values."""
        hours = self.kind == "hours"
        return {
            "kind": self.kind,
            "state": self.state,
            "limit_s": self.limit_s or None,
            "started": self.started.isoformat() if self.started else None,
            "left_s": round(self.left_s(now)) if hours else None,
        }


def parse_alarms(stack: str, alarms: Sequence[Mapping[str, Any]]) -> tuple[Bound, ...]:
    """Parse DescribeAlarms' answer: idleness, hours and budget, in this order; other alarms are left out."""
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
        # Idleness is watched for one period more than was asked for, of which the first may be a part.
        limit_s=float(period_s * (periods - 1 if kind == "idle" else periods)),
        period_s=period_s,
        group=_dimension(stats[0]["Metric"]["Dimensions"], "AutoScalingGroupName"),
    )


def _dimension(dimensions: Sequence[Mapping[str, str]], name: str) -> str:
    return next((each["Value"] for each in dimensions if each["Name"] == name), "")


def parse_datapoints(datapoints: Sequence[Mapping[str, Any]]) -> list[Datapoint]:
    """Parse GetMetricStatistics' answer, which comes in no order; oldest first."""
    return sorted((each["Timestamp"], float(each["Minimum"])) for each in datapoints)


def clock_start(points: Sequence[Datapoint]) -> datetime.datetime | None:
    """Return since when there have been workers without a break; None where there are none, or no data."""
    started: datetime.datetime | None = None
    for moment, least in points:
        if not least:
            started = None
        elif started is None:
            started = moment
    return started


def resolution_s(span_s: float) -> int:
    """Return the finest period in which CloudWatch tells so long a time at once."""
    return next(period_s for period_s in (60, 300, 3600) if span_s / period_s < MOST_DATAPOINTS)


def read(aws: Aws, stack: str) -> tuple[Bound, ...]:
    """Ask AWS for the bounds of a stack. Raises AwsError."""
    with aws_errors(f"reading the bounds of {stack}"):
        cloudwatch = aws.client("cloudwatch")
        alarms = cloudwatch.describe_alarms(AlarmNamePrefix=f"{stack}-Guard")["MetricAlarms"]
        return tuple(
            dataclasses.replace(bound, started=_started(cloudwatch, bound)) if bound.kind == "hours" else bound
            for bound in parse_alarms(stack, alarms)
        )


def _started(cloudwatch: Any, bound: Bound) -> datetime.datetime | None:
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


def read_or_say(aws: Aws, stack: str) -> tuple[Bound, ...] | str:
    """Return the bounds, or why they are not known: they hold in any case, so it must not end a task."""
    try:
        return read(aws, stack)
    except AwsError as error:
        return f"what bounds the workers is not known: {error}"


def lines(found: tuple[Bound, ...] | str, now: datetime.datetime) -> list[str]:
    """Say what bounds the workers, one line for each."""
    return [found] if isinstance(found, str) else [bound.line(now) for bound in found]


def cautions(found: tuple[Bound, ...] | str, now: datetime.datetime) -> list[str]:
    """Say, before a run begins, how long it may be; loudly where that is not long."""
    if isinstance(found, str):
        return [found]
    said = []
    for bound in found:
        if bound.kind != "hours":
            continue
        left_s = bound.left_s(now)
        if left_s < max(NEAR_S, NEAR_SHARE * bound.limit_s):
            end = now + datetime.timedelta(seconds=left_s)
            said.append(
                f"warning: max_hours ends all workers in {span(left_s)} (at {end:%H:%M} UTC), this run with them; "
                "for a full span let the group be empty first: `fab scale --nodes 0`"
            )
        else:
            said.append(f"max_hours leaves this run {span(left_s)}")
    return said


@doing("waiting for an alarm to end", plain=False)
def await_release(
    aws: Aws, stack: str, tell: Callable[[str], None], *, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Wait until no bound would end new workers at once: an alarm goes on acting for minutes after an end.

    Raises DeepcdkError where the budget is spent, or an alarm does not end.
    """
    waited_s = 0.0
    while True:
        found = read_or_say(aws, stack)
        acting = [bound for bound in found if bound.state == ALARM] if not isinstance(found, str) else []
        for bound in acting:
            if bound.kind == "budget":
                raise DeepcdkError(
                    "the budget is spent: new workers would be ended at once",
                    remedy="raise budget_usd and `fab up`, then `fab release`",
                )
        if not acting:
            return
        kinds = " and ".join(bound.kind for bound in acting)
        if waited_s >= PATIENCE_S:
            raise DeepcdkError(
                f"the alarm on {kinds} has not ended for {PATIENCE_S:.0f} s: it would end new workers at once",
                remedy="`fab status` shows it; repeat when it is over",
            )
        if not waited_s:
            tell(f"waiting until the alarm on {kinds}, which has just ended all workers, is over")
        sleep(POLL_S)
        waited_s += POLL_S


def messages(aws: Aws, budget: Bound) -> int:
    """Return how many words of the spent budget lie in the queue. Raises AwsError."""
    with aws_errors(f"reading the queue {budget.queue}"):
        sqs = aws.client("sqs")
        answer = sqs.get_queue_attributes(
            QueueUrl=sqs.get_queue_url(QueueName=budget.queue)["QueueUrl"],
            AttributeNames=["ApproximateNumberOfMessages"],
        )
    return int(answer["Attributes"]["ApproximateNumberOfMessages"])


def release(aws: Aws, budget: Bound) -> None:
    """Take the word of the spent budget out of the queue. Raises AwsError."""
    with aws_errors(f"emptying the queue {budget.queue}"):
        sqs = aws.client("sqs")
        sqs.purge_queue(QueueUrl=sqs.get_queue_url(QueueName=budget.queue)["QueueUrl"])


@doing("waiting for the budget's alarm to end", plain=False)
def await_end(
    aws: Aws,
    stack: str,
    budget: Bound,
    tell: Callable[[str], None],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the budget's alarm has seen that it no longer holds. Raises DeepcdkError where it does not end."""
    waited_s = 0.0
    while any(bound.kind == budget.kind and bound.state == ALARM for bound in read(aws, stack)):
        if waited_s >= PATIENCE_S:
            raise DeepcdkError(
                f"the budget's alarm has not ended for {PATIENCE_S:.0f} s", remedy="`fab status` shows when it is over"
            )
        if not waited_s:
            tell("released; waiting until the budget's alarm is over, which takes some minutes")
        sleep(POLL_S)
        waited_s += POLL_S
