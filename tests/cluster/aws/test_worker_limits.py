"""The limits of a cluster's workers, read from recorded answers, and how the tasks use them."""

from __future__ import annotations

import datetime
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.aws import worker_limits
from cluster.aws.client import Aws
from cluster.aws.worker_limits import Limit, wait_until_allowed
from cluster.errors import AwsError, DeepcdkError
from cluster.nodes.release import count_messages, purge_messages, wait_until_released

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


def hours(limit_h: float, gone_h: float | None, state: str = "OK") -> Limit:
    started = None if gone_h is None else NOW - datetime.timedelta(hours=gone_h)
    return Limit(kind="hours", state=state, limit_s=limit_h * 3600, started=started)


def test_limits_come_from_alarms_of_the_stack() -> None:
    found = worker_limits.parse_alarms("deepcdk", [*ALARMS, {"AlarmName": "deepcdk-GuardOther-1", "StateValue": "OK"}])
    assert [(each.kind, each.limit_s) for each in found] == [("idle", 1800), ("hours", 43200), ("budget", 0)]
    assert [each.group for each in found] == ["deepcdk-WorkerGroup-8a6f"] * 2 + [""]
    assert found[2].queue == "deepcdk-GuardBudgetSpent-bc7a"


def minutes(*sizes: int) -> list[worker_limits.Datapoint]:
    return [(NOW + datetime.timedelta(minutes=index), float(size)) for index, size in enumerate(sizes)]


def test_clock_starts_when_group_last_became_nonempty() -> None:
    assert worker_limits.clock_start(minutes(0, 2, 2)) == NOW + datetime.timedelta(minutes=1)
    assert worker_limits.clock_start(minutes(3, 0, 2, 4, 1)) == NOW + datetime.timedelta(minutes=2)
    assert worker_limits.clock_start(minutes(1, 2)) == NOW


@given(st.lists(st.integers(0, 3), max_size=30))
def test_clock_is_missing_only_for_empty_group_or_without_data(sizes: list[int]) -> None:
    started = worker_limits.clock_start(minutes(*sizes))
    assert (started is None) == (not sizes or sizes[-1] == 0)
    if started is not None:
        assert all(sizes[int((started - NOW).total_seconds() // 60) :])


@given(st.floats(1800, 168 * 3600))
def test_whole_time_span_is_read_with_one_call(span_s: float) -> None:
    assert span_s / worker_limits.resolution_s(span_s) < 1440


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        (hours(12, 2), "workers are terminated after 12 h: 10 h left, until 03:00 UTC (since 15:00 UTC)"),
        (hours(12, None), "workers are terminated after 12 h without a pause; the time starts with the first worker"),
        (
            hours(12, 13, "ALARM"),
            "workers are terminated after 12 h; the time is over, and the workers are being terminated now",
        ),
        (
            Limit(kind="idle", state="OK", limit_s=1800),
            "workers are terminated after all of them were idle without a live run for 30 min",
        ),
        (
            Limit(kind="budget", state="ALARM"),
            "workers are terminated when the budget is spent; the budget is spent, so new workers are "
            "terminated immediately until `fab release`",
        ),
    ],
)
def test_each_limit_describes_its_effect_and_time(bound: Limit, text: str) -> None:
    assert bound.line(NOW) == text


@pytest.mark.parametrize(
    ("bound", "loud"),
    [(hours(12, 11.5), True), (hours(12, 10), False), (hours(100, 95), True), (hours(100, 89), False)],
)
def test_run_is_warned_if_less_than_an_hour_or_a_tenth_is_left(bound: Limit, loud: bool) -> None:
    (line,) = worker_limits.cautions((bound, Limit(kind="idle", state="OK")), NOW)
    assert line.startswith("warning: max_hours terminates all workers in") == loud
    assert loud or line.startswith("max_hours leaves this run")


def test_unknown_limits_are_reported_and_stop_nothing() -> None:
    class Denied(Aws):
        def _client(self, service: str, *, impatient: bool) -> Any:
            raise AwsError("AWS denied the request", where=service)

    found = worker_limits.read_or_explain(Denied(), "deepcdk")
    assert isinstance(found, str)
    assert worker_limits.lines(found, NOW) == worker_limits.cautions(found, NOW) == [found]
    wait_until_allowed(Denied(), "deepcdk", pytest.fail)


class Alarms:
    """Answer DescribeAlarms with one list after the other; the last one is repeated forever."""

    def __init__(self, *answers: list[dict[str, Any]]) -> None:
        self.answers = list(answers)

    def client(self, service: str) -> Alarms:
        assert service == "cloudwatch"
        return self

    def describe_alarms(self, AlarmNamePrefix: str) -> dict[str, Any]:
        assert AlarmNamePrefix == "deepcdk-Guard"
        return {"MetricAlarms": self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]}

    def get_metric_statistics(self, **asked: Any) -> dict[str, Any]:
        first = asked["StartTime"]
        points = [(1, 0.0), (3, 2.0), (2, 2.0)]  # unordered
        return {"Datapoints": [{"Timestamp": first + datetime.timedelta(hours=h), "Minimum": n} for h, n in points]}


def test_clock_is_read_from_the_metric_of_the_group() -> None:
    before = datetime.datetime.now(datetime.UTC)
    (found,) = worker_limits.read(cast(Aws, Alarms([math_alarm("GuardHours", periods=144)])), "deepcdk")
    assert found.started is not None
    assert abs((found.started - before).total_seconds() + 10 * 3600) < 60, "two of the last 12 hours after the start"
    assert found.to_document(NOW)["limit_s"] == 12 * 3600


def alarms(*states: str, budget: bool = False) -> Aws:
    """Return a cloud with an idle or budget alarm that goes through these states."""
    answers = [[budget_alarm(state) if budget else math_alarm("GuardIdle", periods=7, state=state)] for state in states]
    return cast(Aws, Alarms(*answers))


def test_release_empties_the_queue_of_the_budget(aws: Aws) -> None:
    budget = Limit(kind="budget", state="ALARM", queue="spent")
    sqs = aws.client("sqs")
    url = sqs.create_queue(QueueName="spent")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="spent")
    assert count_messages(aws, budget) == 1
    purge_messages(aws, budget)
    assert count_messages(aws, budget) == 0


def test_release_waits_a_limited_time_for_end_of_alarm(slept: list[float]) -> None:
    reported: list[tuple[str, int]] = []
    wait_until_released(
        alarms("ALARM", "ALARM", "OK", budget=True), "deepcdk", lambda line: reported.append((line, len(slept)))
    )
    assert reported == [("released; waiting until the budget's alarm is inactive, which takes some minutes", 0)]
    assert slept == [5.0, 5.0]
    with pytest.raises(DeepcdkError, match="the budget's alarm is still active after 600 s") as caught:
        wait_until_released(alarms("ALARM", budget=True), "deepcdk", lambda line: None)
    assert "`fab status`" in caught.value.remedy


def test_group_grows_only_after_alarm_is_over(slept: list[float]) -> None:
    reported: list[tuple[str, int]] = []
    wait_until_allowed(alarms("ALARM", "ALARM", "OK"), "deepcdk", lambda line: reported.append((line, len(slept))))
    assert reported == [
        ("the alarm of idle_minutes has just terminated all workers; waiting until the alarm is inactive", 0)
    ]
    assert len(slept) == 2
    slept.clear()
    with pytest.raises(DeepcdkError, match="the alarm of idle_minutes is still active after 600 s") as caught:
        wait_until_allowed(alarms("ALARM"), "deepcdk", lambda line: None)
    assert sum(slept) == 600
    assert "`fab status`" in caught.value.remedy


def test_spent_budget_rejects_growth_immediately() -> None:
    with pytest.raises(
        DeepcdkError, match="the budget is spent: new workers would be terminated immediately"
    ) as caught:
        wait_until_allowed(alarms("ALARM", budget=True), "deepcdk", pytest.fail)
    assert caught.value.remedy == "raise budget_usd, run `fab up`, then `fab release`"


def test_growth_does_not_wait_without_alarm(slept: list[float]) -> None:
    wait_until_released(alarms("OK", budget=True), "deepcdk", pytest.fail)
    wait_until_released(alarms("ALARM"), "deepcdk", pytest.fail)  # only the budget's alarm is waited for
    wait_until_allowed(alarms("OK"), "deepcdk", pytest.fail)
    assert slept == []
