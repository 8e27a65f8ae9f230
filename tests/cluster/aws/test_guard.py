"""What bounds a cluster's workers, read from recorded answers, and what the tasks make of it."""

from __future__ import annotations

import datetime
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.aws import guard, guard_release
from cluster.aws.client import Aws
from cluster.aws.guard import Bound
from cluster.errors import AwsError

NOW = datetime.datetime(2026, 11, 21, 17, 0, tzinfo=datetime.UTC)


def math_alarm(logical_id: str, *, periods: int, period_s: int = 300, state: str = "OK") -> dict[str, Any]:
    dimensions = [{"Name": "AutoScalingGroupName", "Value": "deepcdk-WorkerGroup-8a6f"}]
    metric = {"Namespace": "AWS/AutoScaling", "MetricName": "GroupInServiceInstances", "Dimensions": dimensions}
    return {
        "AlarmName": f"deepcdk-{logical_id}-1edd97dea6e9",
        "StateValue": state,
        "EvaluationPeriods": periods,
        "Metrics": [
            {"Id": "bound", "Expression": "IF(FILL(size, REPEAT) > 0, 1, 0)", "ReturnData": True},
            {"Id": "size", "MetricStat": {"Metric": metric, "Period": period_s, "Stat": "Minimum"}},
        ],
    }


def budget_alarm(state: str = "OK") -> dict[str, Any]:
    return {
        "AlarmName": "deepcdk-GuardBudget-f994cc377db4",
        "StateValue": state,
        "EvaluationPeriods": 1,
        "Period": 60,
        "Dimensions": [{"Name": "QueueName", "Value": "deepcdk-GuardBudgetSpent-bc7a"}],
    }


ALARMS = [math_alarm("GuardHours", periods=144), budget_alarm(), math_alarm("GuardIdle", periods=7)]


def hours(limit_h: float, gone_h: float | None, state: str = "OK") -> Bound:
    started = None if gone_h is None else NOW - datetime.timedelta(hours=gone_h)
    return Bound(kind="hours", state=state, limit_s=limit_h * 3600, started=started)


def test_the_alarms_of_the_stack_are_its_bounds() -> None:
    found = guard.parse_alarms("deepcdk", [*ALARMS, {"AlarmName": "deepcdk-GuardOther-1", "StateValue": "OK"}])
    assert [(each.kind, each.limit_s) for each in found] == [("idle", 1800), ("hours", 43200), ("budget", 0)]
    assert [each.group for each in found] == ["deepcdk-WorkerGroup-8a6f"] * 2 + [""]
    assert found[2].queue == "deepcdk-GuardBudgetSpent-bc7a"


def test_a_cluster_without_bounds_has_none() -> None:
    assert guard.parse_alarms("deepcdk", []) == ()


def minutes(*sizes: int) -> list[guard.Datapoint]:
    return [(NOW + datetime.timedelta(minutes=index), float(size)) for index, size in enumerate(sizes)]


def test_the_clock_begins_when_the_group_last_ceased_to_be_empty() -> None:
    assert guard.clock_start(minutes(0, 2, 2)) == NOW + datetime.timedelta(minutes=1)
    assert guard.clock_start(minutes(3, 0, 2, 4, 1)) == NOW + datetime.timedelta(minutes=2)
    assert guard.clock_start(minutes(1, 2)) == NOW


@given(st.lists(st.integers(0, 3), max_size=30))
def test_there_is_no_clock_exactly_where_the_group_is_empty_or_nothing_is_known(sizes: list[int]) -> None:
    started = guard.clock_start(minutes(*sizes))
    assert (started is None) == (not sizes or sizes[-1] == 0)
    if started is not None:
        assert all(sizes[int((started - NOW).total_seconds() // 60) :])


def test_datapoints_come_in_no_order() -> None:
    given = [{"Timestamp": NOW, "Minimum": 2.0}, {"Timestamp": NOW - datetime.timedelta(minutes=1), "Minimum": 0}]
    assert [least for _, least in guard.parse_datapoints(given)] == [0.0, 2.0]


@given(st.floats(1800, 168 * 3600))
def test_cloudwatch_tells_the_whole_span_at_once(span_s: float) -> None:
    assert span_s / guard.resolution_s(span_s) < 1440


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        (hours(12, 2), "workers are terminated after 12 h: 10 h left, until 03:00 UTC (since 15:00 UTC)"),
        (hours(12, None), "workers are terminated after 12 h without a break; the time starts with the first one"),
        (
            hours(12, 13, "ALARM"),
            "workers are terminated after 12 h; that time is over, and they are being terminated now",
        ),
        (Bound(kind="idle", state="OK", limit_s=1800), "workers are terminated after all were idle for 30 min"),
        (Bound(kind="budget", state="OK"), "workers are terminated when the budget is spent"),
    ],
)
def test_each_bound_says_what_it_does_and_when(bound: Bound, text: str) -> None:
    assert bound.line(NOW) == text


def test_a_spent_budget_comes_with_the_task_that_releases_the_workers() -> None:
    line = Bound(kind="budget", state="ALARM", queue="spent").line(NOW)
    assert "it is spent" in line
    assert line.endswith("`fab release`")


@pytest.mark.parametrize(
    ("bound", "loud"),
    [(hours(12, 11.5), True), (hours(12, 10), False), (hours(100, 95), True), (hours(100, 89), False)],
)
def test_a_run_is_warned_where_less_than_an_hour_or_a_tenth_is_left(bound: Bound, loud: bool) -> None:
    (line,) = guard.cautions((bound, Bound(kind="idle", state="OK")), NOW)
    assert line.startswith("warning: max_hours terminates all workers in") == loud
    assert loud or line.startswith("max_hours leaves this run")


def test_what_is_not_known_is_said_and_ends_nothing() -> None:
    class Denied(Aws):
        def client(self, service: str, *, impatient: bool = False) -> Any:
            raise AwsError("AWS denies it", where=service)

    found = guard.read_or_explain(Denied(), "deepcdk")
    assert isinstance(found, str)
    assert guard.lines(found, NOW) == guard.cautions(found, NOW) == [found]
    guard_release.wait_until_allowed(Denied(), "deepcdk", pytest.fail)


class Alarms:
    """Answer DescribeAlarms with one list after the other, the last one for ever."""

    def __init__(self, *answers: list[dict[str, Any]]) -> None:
        self.answers = list(answers)

    def client(self, service: str) -> Alarms:
        assert service == "cloudwatch"
        return self

    def describe_alarms(self, AlarmNamePrefix: str) -> dict[str, Any]:
        assert AlarmNamePrefix == "deepcdk-Guard"
        return {"MetricAlarms": self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]}

    def get_metric_statistics(self, **asked: Any) -> dict[str, Any]:
        return {"Datapoints": [{"Timestamp": asked["StartTime"], "Minimum": 2.0}]}


def test_the_clock_is_read_from_the_groups_own_metric() -> None:
    (found,) = guard.read(cast(Aws, Alarms([math_alarm("GuardHours", periods=12)])), "deepcdk")
    assert found.started is not None
    assert found.to_document(NOW)["limit_s"] == 3600
