"""The alarms: which exist, when they fire, and whom they notify."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.alarms import HOUR_OF_BURSTING, Alarm, alarms
from stacks.config import ClusterConfig
from stacks.metrics import MetricSources
from tests.stacks.clusters.template import Template
from tests.stacks.conftest import TOPIC, Variant


def by_id(agents: bool = False, **values: Any) -> dict[str, Alarm]:
    config = ClusterConfig(ssh_cidr=("198.18.0.7/32",), alarms=True, **values)
    sources = MetricSources(
        groups={"master": "one-MasterGroup-1", "worker": "one-WorkerGroup-1"},
        file_system="fs-0123456789abcdef0",
        nat_gateways=("nat-1",),
        namespace="deepcdk/one",
        node_metrics=agents,
        gpus=False,
        efa=False,
        log_groups=(),
    )
    return {alarm.id: alarm for alarm in alarms(config, sources)}


@pytest.fixture
def notified(variant: Variant) -> Template:
    return variant("GPU block")


def for_people(template: Template) -> dict[str, dict[str, Any]]:
    """Return the alarms that notify people, by logical id."""
    return {id: item for id, item in template.of("AWS::CloudWatch::Alarm").items() if not id.startswith("Guard")}


def test_every_silent_failure_has_an_alarm_with_explanation() -> None:
    nodes = {f"{role}{what}" for role in ("Worker", "Master") for what in ("Missing", "StatusCheck")}
    assert set(by_id()) == nodes | {"EfsIoLimit", "EfsBurstCredits", "NatPorts1"}
    assert set(by_id(agents=True)) - set(by_id()) == {"WorkerDiskFull", "MasterDiskFull"}
    for alarm in by_id(agents=True).values():
        assert (alarm.above is None) != (alarm.below is None)
        assert len(alarm.text) > 60
        assert ("`fab clean`" in alarm.text) == alarm.id.endswith("DiskFull")


def test_missing_nodes_alarm_waits_for_the_boot_timeout() -> None:
    assert by_id(ready_timeout_min=40)["WorkerMissing"].periods == 40


@given(st.integers(1, 3600))
def test_disk_alarm_period_is_at_least_the_interval_of_the_agent(interval_s: int) -> None:
    alarm = by_id(agents=True, metrics_interval_s=interval_s)["WorkerDiskFull"]
    assert alarm.period_s % 60 == 0
    assert alarm.period_s >= interval_s
    assert alarm.periods == 1, "one sample of a full disk is enough, and no gap between samples hides it"


@pytest.mark.parametrize(
    ("values", "gone"),
    [
        ({"efs_throughput": "elastic"}, {"EfsBurstCredits"}),
        ({"efs_performance": "maxIO"}, {"EfsIoLimit"}),
        ({"efs_throughput": "elastic", "file_system_id": "fs-0123456789abcdef0"}, set()),
    ],
)
def test_file_system_without_limit_has_no_alarm(values: dict[str, Any], gone: set[str]) -> None:
    assert set(by_id()) - set(by_id(**values)) == gone


def test_burst_credit_alarm_fires_an_hour_before_exhaustion(notified: Template) -> None:
    (alarm,) = [item for id, item in for_people(notified).items() if "EfsBurstCredits" in id]
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", HOUR_OF_BURSTING)


def test_mail_and_topic_receive_every_alarm_and_failed_launch(notified: Template) -> None:
    own = {"Ref": notified.only("AWS::SNS::Topic")}
    for item in for_people(notified).values():
        assert item["AlarmActions"] == item["OKActions"] == [TOPIC, own]
        assert item["TreatMissingData"] == "notBreaching"
        assert item["EvaluationPeriods"] == item["DatapointsToAlarm"] >= 1
    (mail,) = notified.of("AWS::SNS::Subscription").values()
    assert (mail["TopicArn"], mail["Protocol"], mail["Endpoint"]) == (own, "email", "ops@example.com")
    for name in ("WorkerGroup", "MasterGroup"):
        resource = notified.resources[name]
        found = resource["Properties"]["NotificationConfigurations"]
        assert [item["TopicARN"] for item in found] == [TOPIC, own]
        assert all("autoscaling:EC2_INSTANCE_LAUNCH_ERROR" in item["NotificationTypes"] for item in found)
        assert notified.only("AWS::SNS::TopicPolicy") in resource["DependsOn"]


def test_alarms_without_recipients_have_no_actions(variant: Variant) -> None:
    silent = variant("watched")
    assert not silent.of("AWS::SNS::Topic")
    assert "NotificationConfigurations" not in silent.resources["WorkerGroup"]["Properties"]
    assert all(not item.get("AlarmActions") for item in silent.of("AWS::CloudWatch::Alarm").values())
    assert for_people(silent)
