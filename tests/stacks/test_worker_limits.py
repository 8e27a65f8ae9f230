"""The limits of the workers: alarms that stop the workers, and that reset once there are none."""

from __future__ import annotations

from typing import Any

import pytest

from agent.supervisor import idle_alarm_metric
from stacks.config import ClusterConfig
from stacks.worker_limits import idle_cpu_percent
from tests.stacks.clusters.eight import SSH_CIDR
from tests.stacks.clusters.template import Template
from tests.stacks.conftest import Variant


def alarm(template: Template, name: str) -> dict[str, Any]:
    return template.of("AWS::CloudWatch::Alarm")[name]


def test_idle_alarm_reads_metric_published_by_master(template: Template) -> None:
    (live,) = (each["MetricStat"] for each in alarm(template, "GuardIdle")["Metrics"] if each["Id"] == "runs")
    words = idle_alarm_metric.command("deepcdk", "us-east-1")
    published = [words[words.index(flag) + 1] for flag in ("--namespace", "--metric-name")]
    assert [live["Metric"]["Namespace"], live["Metric"]["MetricName"]] == published
    assert "Dimensions" not in live["Metric"]
    assert (live["Stat"], live["Period"]) == ("SampleCount", 300)


def test_master_may_publish_and_stop_without_replacing_workers(variant: Variant) -> None:
    """A limit may be set while a run is live."""
    resources = variant("watched").of("AWS::IAM::Policy")
    (found,) = (each for id, each in resources.items() if id.startswith("BoundsMasterStops"))
    actions = [each["Action"] for each in found["PolicyDocument"]["Statement"]]
    assert actions == ["autoscaling:ExecutePolicy", "cloudwatch:PutMetricData"]


@pytest.mark.parametrize(("name", "period_s", "periods"), [("borrowed", 300, 288), ("temporary", 3600, 25)])
def test_hours_match_configuration_within_limits_of_cloudwatch(
    variant: Variant, name: str, period_s: int, periods: int
) -> None:
    found = alarm(variant(name), "GuardHours")
    assert found["Metrics"][1]["MetricStat"]["Period"] == period_s
    assert found["EvaluationPeriods"] == periods
    assert period_s * periods <= (604800 if period_s >= 3600 else 86400)


def test_idle_alarm_lasts_one_period_longer_than_configured(variant: Variant) -> None:
    assert alarm(variant("temporary"), "GuardIdle")["EvaluationPeriods"] == 3


def test_worker_is_idle_below_half_of_one_vcpu() -> None:
    def limit(**values: Any) -> float:
        return idle_cpu_percent(ClusterConfig(ssh_cidr=SSH_CIDR, **values))

    assert limit() == 6.25
    assert limit(worker_instance_type="p5.48xlarge") == 0.26
    assert limit(worker_instance_type="p5.48xlarge", idle_cpu_percent=2.0) == 2.0


def test_notifying_budget_covers_the_account_and_mails_three_times(variant: Variant) -> None:
    template = variant("watched")
    (budget,) = template.of("AWS::Budgets::Budget").values()
    assert budget["Budget"]["BudgetLimit"] == {"Amount": 5, "Unit": "USD"}
    assert "CostFilters" not in budget["Budget"]
    assert {
        (each["Notification"]["NotificationType"], each["Notification"]["Threshold"], subscriber["SubscriptionType"])
        for each in budget["NotificationsWithSubscribers"]
        for subscriber in each["Subscribers"]
    } == {("ACTUAL", 80, "EMAIL"), ("ACTUAL", 100, "EMAIL"), ("FORECASTED", 100, "EMAIL")}
    assert not {item["Type"] for item in template.resources.values()} & {"AWS::SNS::Topic", "AWS::SQS::Queue"}
