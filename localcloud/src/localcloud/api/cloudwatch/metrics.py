"""The metrics of EC2, Auto Scaling and SQS, in moto's store of metric data, and a reader of series.

PutMetricData writes to the same store. moto does not measure anything, and accepts any period and timestamp.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from moto.cloudwatch.exceptions import InvalidParameterValue
from moto.cloudwatch.models import MetricDatum
from moto.cloudwatch.responses import CloudWatchResponse
from moto.core.utils import utcnow

from localcloud.api.cloudwatch.expressions import Series
from localcloud.api.monkeypatch import first
from localcloud.snapshot import HostLoad

STATISTICS: Final = ("SampleCount", "Average", "Sum", "Minimum", "Maximum")
_KEPT: Final = 200_000
"""Maximum number of stored values; the oldest are dropped. AWS keeps one-minute values for 15 days."""

_SHORT_PERIODS: Final = (1, 5, 10, 20, 30)
_PAST: Final = datetime.timedelta(weeks=2)
_FUTURE: Final = datetime.timedelta(hours=2)

Dimensions = Mapping[str, str]


class Recorder:
    """Writes measurements to moto's store, all with the time at which the Recorder was created."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._now = utcnow()

    def hosts(self, loads: Iterable[HostLoad]) -> None:
        """Record EC2's metrics for each instance, and for its Auto Scaling group if it has one.

        They are CPUUtilization, NetworkIn, NetworkOut and the status checks, which are always 0.
        """
        for load in loads:
            owners = [{"InstanceId": load.instance_id}]
            if load.group:
                owners.append({"AutoScalingGroupName": load.group})
            for owner in owners:
                self._add("AWS/EC2", "CPUUtilization", owner, load.cpu_percent, "Percent")
                self._add("AWS/EC2", "NetworkIn", owner, load.received_bytes, "Bytes")
                self._add("AWS/EC2", "NetworkOut", owner, load.sent_bytes, "Bytes")
                for check in ("StatusCheckFailed", "StatusCheckFailed_Instance", "StatusCheckFailed_System"):
                    self._add("AWS/EC2", check, owner, 0.0, "Count")

    def groups(self, autoscaling: Any) -> None:
        """Record the enabled metrics of all Auto Scaling groups. `autoscaling` is moto's backend."""
        for group in autoscaling.autoscaling_groups.values():
            values = _sizes(group)
            for name in group.metrics:
                self._add("AWS/AutoScaling", name, {"AutoScalingGroupName": group.name}, values[name], "None")

    def queues(self, sqs: Any) -> None:
        """Record the number of messages in each queue, and the age of the oldest message if there is one.

        Messages older than the queue's retention period do not count.
        """
        for queue in sqs.queues.values():
            owner, now = {"QueueName": queue.name}, epoch(self._now)
            sent = [message.sent_timestamp / 1000 for message in queue.messages]
            waiting = [at for at in sent if now - at < float(queue.message_retention_period)]
            self._add("AWS/SQS", "ApproximateNumberOfMessagesVisible", owner, len(waiting), "Count")
            if waiting:
                self._add("AWS/SQS", "ApproximateAgeOfOldestMessage", owner, max(0.0, now - min(waiting)), "Seconds")

    def _add(self, namespace: str, name: str, dimensions: Dimensions, value: float, unit: str) -> None:
        listed = [{"Name": key, "Value": text} for key, text in dimensions.items()]
        data: list[Any] = self._backend.metric_data
        data.append(MetricDatum(namespace, name, float(value), listed, self._now, unit))
        del data[:-_KEPT]


def _sizes(group: Any) -> dict[str, float]:
    """Return the current values of an Auto Scaling group's metrics by name."""
    states = [state for state in group.instance_states if state.instance._state.name != "terminated"]
    in_service = [state for state in states if state.lifecycle_state == "InService"]
    return {
        "GroupMinSize": float(group.min_size or 0),
        "GroupMaxSize": float(group.max_size or 0),
        "GroupDesiredCapacity": float(group.desired_capacity or 0),
        "GroupInServiceInstances": float(len(in_service)),
        "GroupPendingInstances": float(sum(state.lifecycle_state.startswith("Pending") for state in states)),
        "GroupStandbyInstances": float(sum(state.lifecycle_state == "Standby" for state in states)),
        "GroupTerminatingInstances": float(sum(state.lifecycle_state.startswith("Terminating") for state in states)),
        "GroupTotalInstances": float(len(states)),
    }


Key = tuple[str, str, frozenset[tuple[str, str]]]
"""Namespace, name and dimensions of a metric."""


class Reader:
    """Reads series from moto's store. Values that are stored after the Reader was created are not seen."""

    def __init__(self, data: Iterable[Any]) -> None:
        self._data: dict[Key, list[Any]] = {}
        for datum in data:
            dimensions = frozenset((each.name, each.value) for each in datum.dimensions)
            self._data.setdefault((datum.namespace, datum.name, dimensions), []).append(datum)

    def series(self, key: Key, statistic: str, *, period_s: float, periods: int, end: float) -> Series:
        """Return a statistic of a metric in each of the last `periods` periods before `end`, oldest first.

        `end` is in seconds since 1970. A value at `end` belongs to the last period. A period without data is None.
        """
        slots: list[list[Any]] = [[] for _ in range(periods)]
        for datum in self._data.get(key, ()):
            slot = math.floor((end - epoch(datum.timestamp)) / period_s)
            if 0 <= slot < periods:
                slots[slot].append(datum)
        return [summary(each, statistic) for each in reversed(slots)]


def epoch(moment: datetime.datetime) -> float:
    """Return a time in seconds since 1970. A time without a zone, as in moto, is UTC."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def summary(data: list[Any], statistic: str) -> float | None:
    """Return one of `STATISTICS` of moto's data (single values and statistic sets), or None without data."""
    if not data:
        return None
    single = [datum.value for datum in data if isinstance(datum, MetricDatum)]
    sets = [datum for datum in data if not isinstance(datum, MetricDatum)]
    count = len(single) + sum(each.sample_count for each in sets)
    total = sum(single) + sum(each.sum for each in sets)
    if statistic == "SampleCount":
        return float(count)
    if statistic == "Sum":
        return float(total)
    if statistic == "Average":
        return total / count if count else None
    choose = min if statistic == "Minimum" else max
    return float(choose([*single, *((each.min if choose is min else each.max) for each in sets)]))


@first(CloudWatchResponse, "get_metric_statistics")
def _check_period(responses: Any) -> None:
    period = responses._get_int_param("Period")
    if period not in _SHORT_PERIODS and (period <= 0 or period % 60):
        # The rule is in the API reference; AWS's error text is not known.
        raise InvalidParameterValue(
            f"The parameter Period must be {', '.join(map(str, _SHORT_PERIODS))} or a multiple of 60, and is {period}."
        )


@first(CloudWatchResponse, "put_metric_data")
def _check_times(responses: Any) -> None:
    """Reject timestamps more than two weeks in the past or two hours in the future."""
    now = datetime.datetime.now(datetime.UTC)
    for number, datum in enumerate(responses._get_param("MetricData", []), start=1):
        given = datum.get("Timestamp")
        if given is None:
            continue
        moment = given if given.tzinfo else given.replace(tzinfo=datetime.UTC)
        far = "two weeks in the past" if moment < now - _PAST else "two hours in the future"
        if not now - _PAST <= moment <= now + _FUTURE:
            raise InvalidParameterValue(
                f"The parameter MetricData.member.{number}.Timestamp must specify a time no more than {far}."
            )
