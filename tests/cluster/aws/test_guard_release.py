"""Facts about waiting for the guard's alarms, and about releasing the workers after the budget was spent."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cluster.aws import guard_release
from cluster.aws.client import Aws
from cluster.aws.guard import Bound
from cluster.aws.guard_release import count_messages, purge_messages, wait_for_end, wait_until_allowed
from cluster.errors import DeepcdkError


def alarm(name: str, state: str) -> dict[str, Any]:
    """Return an alarm on the budget's queue, or one on a metric of the group."""
    if name == "GuardBudget":
        dimensions = [{"Name": "QueueName", "Value": "spent"}]
        return {"AlarmName": f"deepcdk-{name}-f994", "StateValue": state, "Dimensions": dimensions}
    metric = {"Dimensions": [{"Name": "AutoScalingGroupName", "Value": "workers"}]}
    metrics = [{"Id": "size", "MetricStat": {"Metric": metric, "Period": 300, "Stat": "Minimum"}}]
    return {"AlarmName": f"deepcdk-{name}-1edd", "StateValue": state, "EvaluationPeriods": 7, "Metrics": metrics}


class Alarms:
    """Answer DescribeAlarms with one alarm after the other, and the last one again and again."""

    def __init__(self, name: str, *states: str) -> None:
        self.answers = [alarm(name, state) for state in states]

    def client(self, service: str) -> Alarms:
        assert service == "cloudwatch"
        return self

    def describe_alarms(self, AlarmNamePrefix: str) -> dict[str, Any]:
        assert AlarmNamePrefix == "deepcdk-Guard"
        return {"MetricAlarms": [self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]]}


def test_a_release_empties_the_queue_of_the_budget(aws: Aws) -> None:
    budget = Bound(kind="budget", state="ALARM", queue="spent")
    sqs = aws.client("sqs")
    url = sqs.create_queue(QueueName="spent")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="spent")
    assert count_messages(aws, budget) == 1
    purge_messages(aws, budget)
    assert count_messages(aws, budget) == 0


def test_a_release_waits_for_the_end_of_the_alarm_and_not_for_ever(slept: list[float]) -> None:
    reported: list[str] = []
    waits_before: list[int] = []

    def report(line: str) -> None:
        reported.append(line)
        waits_before.append(len(slept))

    wait_for_end(cast(Aws, Alarms("GuardBudget", "ALARM", "ALARM", "OK")), "deepcdk", report)
    assert reported == ["released; waiting for the end of the budget's alarm, which takes some minutes"]
    assert (slept, waits_before) == ([5.0, 5.0], [0])
    with pytest.raises(DeepcdkError, match="has not ended for 600 s"):
        wait_for_end(cast(Aws, Alarms("GuardBudget", "ALARM")), "deepcdk", reported.append)


def test_a_group_grows_only_when_the_alarm_that_emptied_it_is_over(slept: list[float]) -> None:
    reported: list[str] = []
    wait_until_allowed(cast(Aws, Alarms("GuardIdle", "ALARM", "ALARM", "OK")), "deepcdk", reported.append)
    assert len(slept) == 2
    assert reported == ["waiting for the end of the alarm on idle, which has just terminated all workers"]


def test_an_alarm_that_does_not_end_is_not_waited_for_for_ever(slept: list[float]) -> None:
    with pytest.raises(DeepcdkError, match="has not ended for 600 s"):
        wait_until_allowed(cast(Aws, Alarms("GuardIdle", "ALARM")), "deepcdk", lambda line: None)
    assert sum(slept) == 600


def test_a_spent_budget_refuses_growth_at_once() -> None:
    with pytest.raises(DeepcdkError) as caught:
        wait_until_allowed(cast(Aws, Alarms("GuardBudget", "ALARM")), "deepcdk", pytest.fail)
    assert caught.value.what == "the budget is spent: new workers would be terminated at once"
    assert caught.value.remedy == "raise budget_usd and `fab up`, then `fab release`"


def test_a_release_whose_alarm_is_over_already_says_nothing(slept: list[float]) -> None:
    wait_for_end(cast(Aws, Alarms("GuardBudget", "OK")), "deepcdk", pytest.fail)
    wait_for_end(cast(Aws, Alarms("GuardIdle", "ALARM")), "deepcdk", pytest.fail)  # another bound's is not waited for
    wait_until_allowed(cast(Aws, Alarms("GuardIdle", "OK")), "deepcdk", pytest.fail)
    assert slept == []


def test_what_is_waited_for_in_vain_says_where_to_look(slept: list[float]) -> None:
    with pytest.raises(DeepcdkError, match="the alarm on idle has not ended") as grown:
        wait_until_allowed(cast(Aws, Alarms("GuardIdle", "ALARM")), "deepcdk", lambda line: None)
    with pytest.raises(DeepcdkError, match="the budget's alarm has not ended") as released:
        wait_for_end(cast(Aws, Alarms("GuardBudget", "ALARM")), "deepcdk", lambda line: None)
    assert "`fab status` shows" in grown.value.remedy and "`fab status` shows" in released.value.remedy


def test_it_is_said_once_and_at_once_for_which_alarms_a_group_waits(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = [Bound(kind=kind, state="ALARM") for kind in ("idle", "hours")]
    told: list[tuple[str, int]] = []
    monkeypatch.setattr(guard_release, "read_or_explain", lambda *_: bounds)
    with pytest.raises(DeepcdkError, match=r"^the alarm on idle and hours has not ended for 600 s"):
        wait_until_allowed(Aws(), "deepcdk", lambda line: told.append((line, len(slept))))
    line = "waiting for the end of the alarm on idle and hours, which has just terminated all workers"
    assert told == [(line, 0)]


def test_alarms_that_cannot_be_read_keep_no_group_from_growing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_release, "read_or_explain", lambda *_: "no permission to read the alarms")
    wait_until_allowed(Aws(), "deepcdk", pytest.fail)
