"""Alarms evaluate metrics, change their states, and run their actions."""

from __future__ import annotations

import dataclasses
import datetime
import re
from typing import Any

import pytest
from botocore.exceptions import ClientError

from api.templates import Client, Stacks, nodes
from localcloud.api.cloud import Cloud
from localcloud.snapshot import HostLoad

IDLE = "IF(FILL(size, REPEAT) > FILL(jobs, 0) * 1000 AND FILL(cpu, REPEAT) < 5, 1, 0)"
"""A published metric keeps the group. Before its first value the metric does not exist."""

JOBS = {"Namespace": "own/one", "MetricName": "Jobs"}


@dataclasses.dataclass
class Clock:
    """Clock of a test, which moto and the alarms use."""

    now: datetime.datetime = datetime.datetime(2026, 1, 1, 12, 0, 30)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("localcloud.api.cloudwatch.metrics.utcnow", lambda: clock.now)
    monkeypatch.setattr("localcloud.api.cloudwatch.watcher.utcnow", lambda: clock.now)
    monkeypatch.setattr("moto.cloudwatch.models.utcnow", lambda: clock.now)
    return clock


def minutes(cloud: Cloud, clock: Clock, count: int, *, cpu: float | None = None, group: str = "") -> None:
    """Advance the clock by minutes. With `cpu`, all hosts have this load (%); otherwise none sends metrics."""
    for _ in range(count):
        clock.now += datetime.timedelta(minutes=1)
        loads = []
        if cpu is not None:
            loads = [
                HostLoad(instance_id=i.id, group=group, cpu_percent=cpu, received_bytes=0, sent_bytes=0)
                for i in cloud.snapshot().instances
            ]
        cloud.record(loads)


def metric(id: str, namespace: str, name: str, statistic: str, group: str) -> dict[str, Any]:
    dimensions = [{"Name": "AutoScalingGroupName", "Value": group}]
    named = {"Namespace": namespace, "MetricName": name, "Dimensions": dimensions}
    return {"Id": id, "ReturnData": False, "MetricStat": {"Metric": named, "Period": 300, "Stat": statistic}}


@pytest.fixture
def group(stacks: Stacks) -> str:
    resources = nodes(2)
    resources["Nodes"]["Properties"]["MetricsCollection"] = [{"Granularity": "1Minute"}]
    return stacks.physical(stacks.create(resources), "Nodes")


@pytest.fixture
def idle(client: Client, group: str) -> str:
    """Create an alarm that scales the group to zero after three idle periods of five minutes."""
    policy = client("autoscaling").put_scaling_policy(
        AutoScalingGroupName=group,
        PolicyName="empty",
        PolicyType="StepScaling",
        AdjustmentType="ExactCapacity",
        StepAdjustments=[{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 0}],
    )["PolicyARN"]
    client("cloudwatch").put_metric_alarm(
        AlarmName="idle",
        ComparisonOperator="GreaterThanThreshold",
        Threshold=0.5,
        EvaluationPeriods=3,
        TreatMissingData="notBreaching",
        AlarmActions=[policy],
        Metrics=[
            {"Id": "idle", "Expression": IDLE},
            metric("size", "AWS/AutoScaling", "GroupInServiceInstances", "Minimum", group),
            metric("cpu", "AWS/EC2", "CPUUtilization", "Maximum", group),
            {"Id": "jobs", "ReturnData": False, "MetricStat": {"Metric": JOBS, "Period": 300, "Stat": "Maximum"}},
        ],
    )
    return "idle"


def state(client: Client, name: str) -> str:
    (found,) = client("cloudwatch").describe_alarms(AlarmNames=[name])["MetricAlarms"]
    return str(found["StateValue"])


def size(cloud: Cloud) -> int:
    return len(cloud.snapshot().instances)


@pytest.mark.parametrize(
    ("expressions", "says"),
    [
        ({"e1": "m1 * 2", "e2": "lost + e1"}, "Error in expression 'e2': Undefined variable lost"),
        ({"e1": "m1 * 2", "e2": "e2 + 1"}, "Error in expression 'e2': Undefined variable e2"),
    ],
)
def test_undefined_variable_in_expression_is_reported(
    client: Client, group: str, expressions: dict[str, str], says: str
) -> None:
    with pytest.raises(ClientError, match=re.escape(says)):
        client("cloudwatch").put_metric_alarm(
            AlarmName="undefined",
            ComparisonOperator="GreaterThanThreshold",
            Threshold=1,
            EvaluationPeriods=1,
            Metrics=[
                metric("m1", "AWS/EC2", "CPUUtilization", "Maximum", group),
                *({"Id": id, "Expression": text, "ReturnData": id == "e2"} for id, text in expressions.items()),
            ],
        )


def test_new_alarm_has_insufficient_data_and_runs_no_action(
    cloud: Cloud, client: Client, clock: Clock, idle: str
) -> None:
    assert state(client, idle) == "INSUFFICIENT_DATA"
    minutes(cloud, clock, 30)
    assert (state(client, idle), size(cloud)) == ("OK", 2)


def test_idle_group_is_emptied_stays_empty_and_may_grow_again(
    cloud: Cloud, client: Client, clock: Clock, idle: str, group: str
) -> None:
    minutes(cloud, clock, 10, cpu=1, group=group)
    assert (state(client, idle), size(cloud)) == ("OK", 2)
    minutes(cloud, clock, 6, cpu=1, group=group)
    assert size(cloud) == 0
    minutes(cloud, clock, 1)
    assert state(client, idle) == "OK", "an empty group is not idle, so the alarm does not repeat its action"
    client("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=2)
    minutes(cloud, clock, 14, cpu=1, group=group)
    assert size(cloud) == 2, "the alarm's periods started again when the group grew"
    minutes(cloud, clock, 6, cpu=1, group=group)
    assert size(cloud) == 0
    activity = client("autoscaling").describe_scaling_activities(AutoScalingGroupName=group)["Activities"][0]
    assert "monitor alarm idle in state ALARM triggered policy empty" in activity["Cause"]


def test_idle_group_stays_while_a_metric_is_published_for_it(
    cloud: Cloud, client: Client, clock: Clock, idle: str, group: str
) -> None:
    for _ in range(10):  # One value in four minutes gives a value in each period.
        client("cloudwatch").put_metric_data(
            Namespace=JOBS["Namespace"], MetricData=[{"MetricName": JOBS["MetricName"], "Value": 1, "Unit": "Count"}]
        )
        minutes(cloud, clock, 4, cpu=1, group=group)
    assert (state(client, idle), size(cloud)) == ("OK", 2)
    minutes(cloud, clock, 10, cpu=1, group=group)
    assert size(cloud) == 2
    minutes(cloud, clock, 10, cpu=1, group=group)
    assert size(cloud) == 0


def test_topic_is_notified_once_and_its_queue_is_measured(
    cloud: Cloud, client: Client, clock: Clock, group: str
) -> None:
    topic = client("sns").create_topic(Name="told")["TopicArn"]
    queue = client("sqs").create_queue(QueueName="heard")["QueueUrl"]
    client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint="arn:aws:sqs:us-east-1:123456789012:heard")
    for name, namespace, measured, dimension in (
        ("many", "AWS/AutoScaling", "GroupDesiredCapacity", {"Name": "AutoScalingGroupName", "Value": group}),
        ("waiting", "AWS/SQS", "ApproximateNumberOfMessagesVisible", {"Name": "QueueName", "Value": "heard"}),
    ):
        client("cloudwatch").put_metric_alarm(
            AlarmName=name,
            Namespace=namespace,
            MetricName=measured,
            Dimensions=[dimension],
            Statistic="Maximum",
            Period=60,
            EvaluationPeriods=1,
            Threshold=1,
            ComparisonOperator="GreaterThanOrEqualToThreshold",
            AlarmActions=[topic] if name == "many" else [],
        )
    minutes(cloud, clock, 5)
    assert (state(client, "many"), state(client, "waiting")) == ("ALARM", "ALARM")
    (message,) = client("sqs").receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
    assert "NewStateValue" in message["Body"]


def test_multi_day_alarm_uses_only_full_hours(cloud: Cloud, client: Client, clock: Clock, group: str) -> None:
    client("cloudwatch").put_metric_alarm(
        AlarmName="days",
        Namespace="AWS/AutoScaling",
        MetricName="GroupInServiceInstances",
        Dimensions=[{"Name": "AutoScalingGroupName", "Value": group}],
        Statistic="Minimum",
        Period=3600,
        EvaluationPeriods=25,
        DatapointsToAlarm=1,
        Threshold=0,
        ComparisonOperator="GreaterThanThreshold",
    )
    minutes(cloud, clock, 58)
    assert state(client, "days") == "INSUFFICIENT_DATA"
    minutes(cloud, clock, 2)
    assert state(client, "days") == "ALARM"


def test_changed_alarm_keeps_its_state(cloud: Cloud, client: Client, clock: Clock, idle: str) -> None:
    minutes(cloud, clock, 2)
    (before,) = client("cloudwatch").describe_alarms(AlarmNames=[idle])["MetricAlarms"]
    changed = {key: before[key] for key in ("AlarmName", "ComparisonOperator", "Metrics", "EvaluationPeriods")}
    client("cloudwatch").put_metric_alarm(**changed, Threshold=0.7)
    assert state(client, idle) == before["StateValue"] == "OK"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ExtendedStatistic": "p99", "Statistic": None}, "the statistic p99"),
        ({"AlarmActions": ["arn:aws:automate:us-east-1:ec2:terminate"]}, "alarm action arn:aws:automate"),
        ({"Period": 300, "EvaluationPeriods": 289}, "a day"),
        ({"Period": 3600, "EvaluationPeriods": 169}, "a week"),
        ({"ComparisonOperator": "GreaterThanUpperThreshold"}, "the comparison GreaterThanUpperThreshold"),
    ],
)
def test_unsupported_settings_are_rejected_by_name(client: Client, change: dict[str, Any], message: str) -> None:
    values: dict[str, Any] = {
        "AlarmName": "refused",
        "Namespace": "AWS/EC2",
        "MetricName": "CPUUtilization",
        "Statistic": "Maximum",
        "Period": 60,
        "EvaluationPeriods": 1,
        "Threshold": 1,
        "ComparisonOperator": "GreaterThanThreshold",
        **change,
    }
    with pytest.raises(ClientError, match=message):
        client("cloudwatch").put_metric_alarm(**{key: value for key, value in values.items() if value is not None})
    assert client("cloudwatch").describe_alarms(AlarmNames=["refused"])["MetricAlarms"] == []
