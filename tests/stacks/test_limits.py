"""The bounds of the workers, in the template: alarms that end them, and each ends by itself once there are none."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localcloud.api.cloudwatch.expressions import Series, evaluate, parse
from stacks.config import ClusterConfig
from stacks.limits import BUSY_BYTES, idle_cpu_percent
from tests.stacks.clusters.template import Template
from tests.stacks.conftest import SSH_CIDR, Synthesise

ALL: dict[str, Any] = {"idle_minutes": 30, "max_hours": 12.0, "budget_usd": 500.0}
VALUES = st.lists(st.none() | st.floats(0, 1e9), min_size=6, max_size=6)


@pytest.fixture
def bounded(synthesise: Synthesise) -> Template:
    return synthesise(**ALL)


def alarm(template: Template, name: str) -> dict[str, Any]:
    return template.of("AWS::CloudWatch::Alarm")[name]


def expression(template: Template, name: str) -> str:
    (found,) = [each["Expression"] for each in alarm(template, name)["Metrics"] if "Expression" in each]
    return str(found)


def test_by_default_idle_workers_are_watched_and_nothing_else_is(template: Template) -> None:
    assert list(template.of("AWS::CloudWatch::Alarm")) == ["GuardIdle"]
    assert alarm(template, "GuardIdle")["EvaluationPeriods"] == 60 // 5 + 1


def test_without_bounds_there_are_no_alarms_and_nothing_is_measured(synthesise: Synthesise) -> None:
    template = synthesise(idle_minutes=0)
    assert "MetricsCollection" not in template.resources["WorkerGroup"]["Properties"]
    kinds = {item["Type"] for item in template.resources.values()}
    assert not {kind for kind in kinds if kind.startswith(("AWS::CloudWatch", "AWS::Budgets", "AWS::SQS", "AWS::SNS"))}


def test_the_master_may_carry_out_the_one_policy_of_the_workers_and_not_set_their_number(template: Template) -> None:
    assert list(template.of("AWS::AutoScaling::ScalingPolicy")) == ["GuardStop"]
    assert template.document["Outputs"]["StopPolicyArn"]["Value"] == {"Ref": "GuardStop"}
    allowed = [each for each in template.statements() if "autoscaling" in str(each)]
    (statement,) = allowed
    assert statement["Action"] == "autoscaling:ExecutePolicy"
    assert statement["Resource"]["Fn::Join"][1][-2:] == [
        ":autoScalingGroup:*:autoScalingGroupName/",
        {"Ref": "WorkerGroup"},
    ]


def test_every_bound_has_the_one_action_that_leaves_no_worker(bounded: Template) -> None:
    policy = bounded.of("AWS::AutoScaling::ScalingPolicy")["GuardStop"]
    assert policy["AutoScalingGroupName"] == {"Ref": "WorkerGroup"}
    assert (policy["PolicyType"], policy["AdjustmentType"]) == ("StepScaling", "ExactCapacity")
    assert policy["StepAdjustments"] == [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 0}]
    alarms = bounded.of("AWS::CloudWatch::Alarm")
    stops = {name for name, each in alarms.items() if each["AlarmActions"] == [{"Ref": "GuardStop"}]}
    assert stops == {"GuardIdle", "GuardHours", "GuardBudget"}
    assert alarms.keys() - stops == {"GuardBudgetRenewal"}


def test_the_metrics_are_those_of_the_worker_group_and_it_collects_them(bounded: Template) -> None:
    (collection,) = bounded.resources["WorkerGroup"]["Properties"]["MetricsCollection"]
    assert "GroupInServiceInstances" in collection["Metrics"]
    for name in ("GuardIdle", "GuardHours"):
        metrics = [each["MetricStat"]["Metric"] for each in alarm(bounded, name)["Metrics"] if "MetricStat" in each]
        assert all(m["Dimensions"][0]["Value"] == {"Ref": "WorkerGroup"} for m in metrics)
    stats = {each["Id"]: each["MetricStat"]["Stat"] for each in alarm(bounded, "GuardIdle")["Metrics"][1:]}
    assert stats == {"size": "Minimum", "cpu": "Maximum", "received": "Maximum", "sent": "Maximum"}


@pytest.mark.parametrize(
    ("hours", "period_s", "periods"), [(0.5, 300, 6), (12, 300, 144), (24, 300, 288), (25, 3600, 25), (168, 3600, 168)]
)
def test_the_hours_are_what_was_asked_for_and_cloudwatch_looks_back_so_far(
    synthesise: Synthesise, hours: float, period_s: int, periods: int
) -> None:
    found = alarm(synthesise(max_hours=hours), "GuardHours")
    assert found["Metrics"][1]["MetricStat"]["Period"] == period_s
    assert found["EvaluationPeriods"] == periods
    assert period_s * periods == hours * 3600 <= (604800 if period_s >= 3600 else 86400)


def test_idleness_lasts_one_period_longer_than_asked_for(synthesise: Synthesise) -> None:
    assert alarm(synthesise(idle_minutes=10), "GuardIdle")["EvaluationPeriods"] == 3
    assert alarm(synthesise(idle_minutes=1430), "GuardIdle")["EvaluationPeriods"] * 300 <= 86400


def test_before_the_first_data_and_without_data_nothing_is_ended(bounded: Template) -> None:
    treatments = {name: found["TreatMissingData"] for name, found in bounded.of("AWS::CloudWatch::Alarm").items()}
    assert treatments.pop("GuardBudget") == "ignore"
    assert treatments == dict.fromkeys(("GuardIdle", "GuardHours", "GuardBudgetRenewal"), "notBreaching")


def computed(template: Template, name: str, **series: Series) -> Series:
    return evaluate(parse(expression(template, name)), series, 6)


@settings(max_examples=60)
@given(cpu=VALUES, received=VALUES, sent=VALUES)
def test_an_empty_group_is_neither_idle_nor_running_whatever_else_is_known(
    synthesise: Synthesise, cpu: Series, received: Series, sent: Series
) -> None:
    template = synthesise(**ALL)
    size: Series = [0.0] * 6
    idle = computed(template, "GuardIdle", size=size, cpu=cpu, received=received, sent=sent)
    assert set(idle) == {0.0}
    assert set(computed(template, "GuardHours", size=size)) == {0.0}


@settings(max_examples=60)
@given(size=st.lists(st.integers(1, 64), min_size=6, max_size=6), cpu=VALUES, received=VALUES, sent=VALUES)
def test_a_worker_is_idle_only_where_all_is_known_and_low(
    synthesise: Synthesise, size: list[float], cpu: Series, received: Series, sent: Series
) -> None:
    template = synthesise(**ALL)
    idle = computed(template, "GuardIdle", size=list(size), cpu=cpu, received=received, sent=sent)
    for index, found in enumerate(idle):
        known = [
            next((value for value in reversed(each[: index + 1]) if value is not None), None)
            for each in (cpu, received, sent)
        ]
        if None in known:
            assert found is None
        else:
            limits = (6.25, BUSY_BYTES + 1, BUSY_BYTES + 1)
            low = all(value < limit for value, limit in zip(known, limits, strict=True) if value is not None)
            assert found in ((1.0,) if low else (0.0, 1.0))
            if known[0] is not None and known[0] >= 6.25:
                assert found == 0.0


def test_lost_data_do_not_turn_the_clock_of_the_hours_back(bounded: Template) -> None:
    assert computed(bounded, "GuardHours", size=[None, 2, None, None, 3, None]) == [None, 1, 1, 1, 1, 1]


def test_a_worker_is_idle_below_half_of_one_of_its_vcpus() -> None:
    def limit(**values: Any) -> float:
        return idle_cpu_percent(ClusterConfig(ssh_cidr=SSH_CIDR, **values))

    assert limit() == 6.25
    assert limit(worker_instance_type="p5.48xlarge") == 0.26
    assert limit(worker_instance_type="p5.48xlarge", idle_cpu_percent=2.0) == 2.0


def test_descriptions_say_what_happens(bounded: Template) -> None:
    for name in ("GuardIdle", "GuardHours", "GuardBudget"):
        assert re.search(r"all workers are ended", alarm(bounded, name)["AlarmDescription"])
