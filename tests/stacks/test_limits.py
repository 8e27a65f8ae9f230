"""The limits of the workers: alarms that stop the workers, and that reset once there are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent.supervisor import live_metric
from stacks.config import ClusterConfig
from stacks.limits import idle_cpu_percent
from tests.stacks.clusters.eight import SSH_CIDR
from tests.stacks.clusters.synthesis import Inspected
from tests.stacks.clusters.template import Template
from tests.stacks.conftest import Variant


@pytest.fixture
def limited(inspected: Callable[[str], Inspected]) -> Template:
    return inspected("everything").template


def alarm(template: Template, name: str) -> dict[str, Any]:
    return template.of("AWS::CloudWatch::Alarm")[name]


def test_by_default_idle_workers_are_watched_and_nothing_else_is(template: Template) -> None:
    assert list(template.of("AWS::CloudWatch::Alarm")) == ["GuardIdle"]
    assert alarm(template, "GuardIdle")["EvaluationPeriods"] == 60 // 5 + 1


def test_every_limit_has_the_one_action_that_leaves_no_worker(limited: Template) -> None:
    assert list(limited.of("AWS::AutoScaling::ScalingPolicy")) == ["GuardStop"]
    policy = limited.of("AWS::AutoScaling::ScalingPolicy")["GuardStop"]
    assert policy["AutoScalingGroupName"] == {"Ref": "WorkerGroup"}
    assert (policy["PolicyType"], policy["AdjustmentType"]) == ("StepScaling", "ExactCapacity")
    assert policy["StepAdjustments"] == [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 0}]
    limits = {name: each for name, each in limited.of("AWS::CloudWatch::Alarm").items() if name.startswith("Guard")}
    stops = {name for name, each in limits.items() if each["AlarmActions"] == [{"Ref": "GuardStop"}]}
    assert stops == {"GuardIdle", "GuardHours", "GuardBudget"}
    assert limits.keys() - stops == {"GuardBudgetRenewal"}
    # Missing data never stops anything, not even before the first data.
    treatments = {name: each["TreatMissingData"] for name, each in limits.items()}
    assert treatments.pop("GuardBudget") == "ignore"
    assert set(treatments.values()) == {"notBreaching"}


def test_an_alarm_computes_whether_workers_are_idle_or_running_from_their_groups_metrics(limited: Template) -> None:
    """The embedded cloud's tests of metric math show that an empty group is neither."""
    for name, expression in (
        (
            "GuardIdle",
            "IF(FILL(size, REPEAT) > FILL(runs, 0) * 1000000, IF(FILL(cpu, REPEAT) >= 3.12"
            " OR FILL(received, REPEAT) > 15000000 OR FILL(sent, REPEAT) > 15000000, 0, 1), 0)",
        ),
        ("GuardHours", "IF(FILL(size, REPEAT) > 0, 1, 0)"),
    ):
        computed, *metrics = alarm(limited, name)["Metrics"]
        assert computed["Expression"] == expression
        stats = {each["Id"]: each["MetricStat"] for each in metrics}
        live = stats.pop("runs", None)
        assert (live is not None) == (name == "GuardIdle")
        assert all(each["Metric"]["Dimensions"][0]["Value"] == {"Ref": "WorkerGroup"} for each in stats.values())
        wanted = {"size": "Minimum", "cpu": "Maximum", "received": "Maximum", "sent": "Maximum"}
        assert {id: each["Stat"] for id, each in stats.items()}.items() <= wanted.items()
    (collection,) = limited.resources["WorkerGroup"]["Properties"]["MetricsCollection"]
    assert "GroupInServiceInstances" in collection["Metrics"]


def test_the_idle_alarm_reads_the_metric_that_the_master_publishes(template: Template) -> None:
    (live,) = (each["MetricStat"] for each in alarm(template, "GuardIdle")["Metrics"] if each["Id"] == "runs")
    words = live_metric.command("deepcdk", "us-east-1")
    published = [words[words.index(flag) + 1] for flag in ("--namespace", "--metric-name")]
    assert [live["Metric"]["Namespace"], live["Metric"]["MetricName"]] == published
    assert "Dimensions" not in live["Metric"]
    assert (live["Stat"], live["Period"]) == ("SampleCount", 300)


def test_the_master_may_publish_to_its_clusters_namespace_alone(variant: Variant) -> None:
    """This holds even without idle_minutes, which may be set while a run is live."""
    for name in ("default", "watched"):
        resources = variant(name).of("AWS::IAM::Policy")
        (found,) = (each for id, each in resources.items() if id.startswith("BoundsMasterStops"))
        statements = found["PolicyDocument"]["Statement"]
        (publish,) = (each for each in statements if each["Action"] == "cloudwatch:PutMetricData")
        assert publish["Condition"] == {"StringEquals": {"cloudwatch:namespace": "deepcdk/deepcdk"}}


def test_the_master_may_have_workers_of_its_group_replaced_unless_that_is_off(variant: Variant) -> None:
    def granted(name: str) -> list[dict[str, Any]]:
        resources = variant(name).of("AWS::IAM::Policy")
        (found,) = (each for id, each in resources.items() if id.startswith("BoundsMasterStops"))
        statements: list[dict[str, Any]] = found["PolicyDocument"]["Statement"]
        return statements

    (group,) = (each for each in granted("default") if "SetInstanceHealth" in str(each["Action"]))
    assert group["Action"] == ["autoscaling:ExecutePolicy", "autoscaling:SetInstanceHealth"]
    assert str(group["Resource"]).count("WorkerGroup") == 1, "the worker group alone"
    assert "SetInstanceHealth" not in str(granted("watched")) and "Describe" not in str(granted("watched"))


@pytest.mark.parametrize(("name", "period_s", "periods"), [("borrowed", 300, 288), ("temporary", 3600, 25)])
def test_the_hours_are_those_asked_for_and_within_what_cloudwatch_evaluates(
    variant: Variant, name: str, period_s: int, periods: int
) -> None:
    found = alarm(variant(name), "GuardHours")
    assert found["Metrics"][1]["MetricStat"]["Period"] == period_s
    assert found["EvaluationPeriods"] == periods
    assert period_s * periods <= (604800 if period_s >= 3600 else 86400)


def test_idleness_lasts_one_period_longer_than_asked_for(variant: Variant) -> None:
    assert alarm(variant("temporary"), "GuardIdle")["EvaluationPeriods"] == 3


def test_a_worker_is_idle_below_half_of_one_of_its_vcpus() -> None:
    def limit(**values: Any) -> float:
        return idle_cpu_percent(ClusterConfig(ssh_cidr=SSH_CIDR, **values))

    assert limit() == 6.25
    assert limit(worker_instance_type="p5.48xlarge") == 0.26
    assert limit(worker_instance_type="p5.48xlarge", idle_cpu_percent=2.0) == 2.0
