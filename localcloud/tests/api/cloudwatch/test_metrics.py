"""Statistics over periods, from single values and from statistic sets."""

from __future__ import annotations

import datetime
from typing import Any

from moto.cloudwatch.models import MetricAggregatedDatum, MetricDatum

from localcloud.api.cloudwatch.metrics import Reader, epoch, summary

NOW = datetime.datetime(2026, 1, 1, 12, 0, 0)
DIMENSIONS = [{"Name": "AutoScalingGroupName", "Value": "nodes"}]
KEY = ("AWS/EC2", "CPUUtilization", frozenset({("AutoScalingGroupName", "nodes")}))


def datum(value: float, seconds_ago: float, dimensions: list[dict[str, str]] = DIMENSIONS) -> MetricDatum:
    moment = NOW - datetime.timedelta(seconds=seconds_ago)
    return MetricDatum("AWS/EC2", "CPUUtilization", value, dimensions, moment, "Percent")


def series(data: list[Any], statistic: str = "Maximum", period_s: float = 300) -> list[float | None]:
    return Reader(data).series(KEY, statistic, period_s=period_s, periods=3, end=epoch(NOW))


def test_each_period_has_its_measurements_newest_last() -> None:
    assert series([datum(1, 700), datum(2, 290), datum(3, 10), datum(9, 2000)]) == [1, None, 3]


def test_other_dimensions_are_another_metric() -> None:
    other = [{"Name": "InstanceId", "Value": "i-1"}]
    more = [*DIMENSIONS, *other]
    assert series([datum(1, 10, other), datum(2, 10, more), datum(3, 10, [])]) == [None, None, None]


def test_all_statistics_of_values_and_sets() -> None:
    whole = MetricAggregatedDatum("AWS/EC2", "CPUUtilization", 1.0, 9.0, 3, 12.0, DIMENSIONS, NOW)
    data = [datum(4, 1), whole]
    found = {name: summary(data, name) for name in ("SampleCount", "Sum", "Average", "Minimum", "Maximum")}
    assert found == {"SampleCount": 4, "Sum": 16, "Average": 4, "Minimum": 1, "Maximum": 9}
