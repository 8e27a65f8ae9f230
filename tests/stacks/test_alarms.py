"""The alarms: which there are, when they ring, whom they tell."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.alarms import HOUR_OF_BURSTING, Alarm, alarms
from stacks.config import ClusterConfig
from tests.stacks.clusters.template import Template
from tests.stacks.conftest import Synthesise
from tests.stacks.test_dashboard import PLAIN

TOPIC = "arn:aws:sns:us-east-1:123456789012:ops"


def by_id(agents: bool = False, **values: Any) -> dict[str, Alarm]:
    config = ClusterConfig(ssh_cidr=("198.18.0.7/32",), alarms=True, **values)
    return {alarm.id: alarm for alarm in alarms(config, dataclasses.replace(PLAIN, node_metrics=agents))}


@pytest.fixture
def told(synthesise: Synthesise) -> Template:
    # Without the alarms that carry bounds out: they tell nobody.
    return synthesise(alarms=True, alarm_emails=("ops@example.com",), alarm_topic=TOPIC, idle_minutes=0)


def test_what_can_go_wrong_without_a_word_has_an_alarm() -> None:
    assert set(by_id()) == {
        "WorkerMissing",
        "WorkerStatusCheck",
        "MasterMissing",
        "MasterStatusCheck",
        "EfsIoLimit",
        "EfsBurstCredits",
        "NatPorts1",
    }


def test_full_disks_are_told_where_agents_measure_them() -> None:
    assert set(by_id(agents=True)) - set(by_id()) == {"WorkerDiskFull", "MasterDiskFull"}


def test_missing_nodes_are_told_only_after_a_boot_may_have_ended() -> None:
    assert by_id(ready_timeout_min=40)["WorkerMissing"].periods == 40


@given(st.integers(1, 3600))
def test_a_period_is_whole_minutes_and_no_shorter_than_the_agents(interval_s: int) -> None:
    alarm = by_id(agents=True, metrics_interval_s=interval_s)["WorkerDiskFull"]
    assert alarm.period_s % 60 == 0
    assert alarm.period_s >= interval_s
    assert alarm.periods == 1, "one sample of a full disk is enough, and no gap between samples hides it"


def test_burst_credits_are_told_an_hour_before_they_are_gone() -> None:
    assert by_id()["EfsBurstCredits"].below == HOUR_OF_BURSTING == 377_487_360_000


@pytest.mark.parametrize(
    ("values", "gone"),
    [
        ({"efs_throughput": "elastic"}, {"EfsBurstCredits"}),
        ({"efs_performance": "maxIO"}, {"EfsIoLimit"}),
        ({"efs_throughput": "elastic", "file_system_id": "fs-0123456789abcdef0"}, set()),
    ],
)
def test_a_file_system_without_a_limit_has_no_alarm_on_it(values: dict[str, Any], gone: set[str]) -> None:
    assert set(by_id()) - set(by_id(**values)) == gone


def test_every_alarm_says_what_to_do_and_rings_on_one_side(told: Template) -> None:
    for alarm in by_id(agents=True).values():
        assert (alarm.above is None) != (alarm.below is None)
        assert len(alarm.text) > 60
    for item in told.of("AWS::CloudWatch::Alarm").values():
        assert item["AlarmDescription"]
        assert item["TreatMissingData"] == "notBreaching"
        assert item["EvaluationPeriods"] == item["DatapointsToAlarm"] >= 1


def test_missing_nodes_are_those_wanted_less_those_in_service(told: Template) -> None:
    (alarm,) = [item for id, item in told.of("AWS::CloudWatch::Alarm").items() if "WorkerMissing" in id]
    queries = {query["Id"]: query for query in alarm["Metrics"]}
    assert queries["difference"]["Expression"] == "m1 - m2"
    names = [queries[id]["MetricStat"]["Metric"]["MetricName"] for id in ("m1", "m2")]
    assert names == ["GroupDesiredCapacity", "GroupInServiceInstances"]
    assert [query["Id"] for query in alarm["Metrics"] if query["ReturnData"]] == ["difference"]
    assert "MetricName" not in alarm


def test_groups_count_the_instances_that_the_alarms_look_at(told: Template) -> None:
    for group in ("MasterGroup", "WorkerGroup"):
        (collected,) = told.resources[group]["Properties"]["MetricsCollection"]
        assert {"GroupDesiredCapacity", "GroupInServiceInstances"} <= set(collected["Metrics"])


def test_mail_and_topic_are_told_of_the_start_and_the_end_of_every_alarm(told: Template) -> None:
    own = {"Ref": told.only("AWS::SNS::Topic")}
    for item in told.of("AWS::CloudWatch::Alarm").values():
        assert item["AlarmActions"] == item["OKActions"] == [TOPIC, own]
    (mail,) = told.of("AWS::SNS::Subscription").values()
    assert (mail["TopicArn"], mail["Protocol"], mail["Endpoint"]) == (own, "email", "ops@example.com")


def test_failed_launches_are_told_once_the_topic_may_be_written_to(told: Template) -> None:
    own = {"Ref": told.only("AWS::SNS::Topic")}
    for group in ("MasterGroup", "WorkerGroup"):
        resource = told.resources[group]
        found = resource["Properties"]["NotificationConfigurations"]
        assert [item["TopicARN"] for item in found] == [TOPIC, own]
        assert all("autoscaling:EC2_INSTANCE_LAUNCH_ERROR" in item["NotificationTypes"] for item in found)
        assert told.only("AWS::SNS::TopicPolicy") in resource["DependsOn"]


def test_only_alarms_of_this_account_may_publish_and_over_tls_alone(told: Template) -> None:
    (policy,) = told.of("AWS::SNS::TopicPolicy").values()
    allow, deny = policy["PolicyDocument"]["Statement"]
    assert (allow["Effect"], allow["Principal"]) == ("Allow", {"Service": "cloudwatch.amazonaws.com"})
    assert allow["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    assert (deny["Effect"], deny["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


def test_without_anybody_to_tell_alarms_just_show(synthesise: Synthesise) -> None:
    silent = synthesise(alarms=True, idle_minutes=0)
    assert not silent.of("AWS::SNS::Topic")
    assert "NotificationConfigurations" not in silent.resources["WorkerGroup"]["Properties"]
    assert all(not item.get("AlarmActions") for item in silent.of("AWS::CloudWatch::Alarm").values())


def test_each_of_two_nat_gateways_would_have_its_alarm() -> None:
    config = ClusterConfig(ssh_cidr=("198.18.0.7/32",), alarms=True)
    sources = dataclasses.replace(PLAIN, nat_gateways=("nat-1", "nat-2"))
    found = [alarm.metrics[0].dimensions for alarm in alarms(config, sources) if alarm.id.startswith("Nat")]
    assert found == [{"NatGatewayId": "nat-1"}, {"NatGatewayId": "nat-2"}]
