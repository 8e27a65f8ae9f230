"""The budget in the template, and how its message reaches an alarm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.stacks.clusters.synthesis import Inspected
from tests.stacks.clusters.template import Template
from tests.stacks.conftest import Variant


@pytest.fixture
def stopping(inspected: Callable[[str], Inspected]) -> Template:
    return inspected("everything").template


def budget(template: Template) -> dict[str, Any]:
    (found,) = template.of("AWS::Budgets::Budget").values()
    return found


def notified(template: Template) -> set[tuple[str, float, str]]:
    """Return the notifications: kind, percent, and the kind of the subscriber."""
    return {
        (each["Notification"]["NotificationType"], each["Notification"]["Threshold"], subscriber["SubscriptionType"])
        for each in budget(template)["NotificationsWithSubscribers"]
        for subscriber in each["Subscribers"]
    }


MAILS = {("ACTUAL", 80, "EMAIL"), ("ACTUAL", 100, "EMAIL"), ("FORECASTED", 100, "EMAIL")}


def test_a_spent_budget_reaches_the_alarm_that_stops_the_workers(stopping: Template) -> None:
    assert notified(stopping) == {*MAILS, ("ACTUAL", 100, "SNS")}
    (subscription,) = [each for each in stopping.of("AWS::SNS::Subscription").values() if each["Protocol"] == "sqs"]
    assert subscription["Endpoint"]["Fn::GetAtt"][0] == "GuardBudgetSpent"
    addresses = [
        each["Address"] for one in budget(stopping)["NotificationsWithSubscribers"] for each in one["Subscribers"]
    ]
    assert subscription["TopicArn"] in addresses
    alarm = stopping.of("AWS::CloudWatch::Alarm")["GuardBudget"]
    assert alarm["Dimensions"][0]["Value"] == {"Fn::GetAtt": ["GuardBudgetSpent", "QueueName"]}
    (made,) = (item for item in stopping.resources.values() if item["Type"] == "AWS::Budgets::Budget")
    topic = subscription["TopicArn"]["Ref"]
    policies = [id for id, each in stopping.of("AWS::SNS::TopicPolicy").items() if {"Ref": topic} in each["Topics"]]
    assert set(policies) <= set(made["DependsOn"]), "without the policy the budget may not publish"


def test_a_budget_that_only_notifies_stops_nothing(variant: Variant) -> None:
    template = variant("watched")
    assert notified(template) == MAILS
    assert not {item["Type"] for item in template.resources.values()} & {"AWS::SNS::Topic", "AWS::SQS::Queue"}


def test_it_counts_the_account_or_what_carries_the_clusters_tag(stopping: Template, variant: Variant) -> None:
    whole = budget(variant("watched"))["Budget"]
    assert (whole["BudgetLimit"], whole["TimeUnit"]) == ({"Amount": 5, "Unit": "USD"}, "MONTHLY")
    assert "CostFilters" not in whole
    assert budget(stopping)["Budget"]["CostFilters"] == {"TagKeyValue": ["user:deepcdk:cluster$everything"]}


def test_another_message_is_sent_before_the_oldest_one_expires(stopping: Template) -> None:
    alarm = stopping.of("AWS::CloudWatch::Alarm")["GuardBudgetRenewal"]
    assert alarm["Dimensions"][0]["Value"] == {"Fn::GetAtt": ["GuardBudgetSpent", "QueueName"]}
    held = stopping.of("AWS::SQS::Queue")["GuardBudgetSpent"]["MessageRetentionPeriod"]
    assert held == 1209600, "the longest time that SQS keeps a message"
    assert held - alarm["Threshold"] >= 24 * alarm["Period"] * alarm["EvaluationPeriods"]


def test_only_this_accounts_budgets_may_publish_and_only_over_tls(stopping: Template) -> None:
    (policy,) = [each for each in stopping.of("AWS::SNS::TopicPolicy").values() if "budgets" in str(each)]
    allowed = [each for each in policy["PolicyDocument"]["Statement"] if each["Effect"] == "Allow"]
    denied = [each for each in policy["PolicyDocument"]["Statement"] if each["Effect"] == "Deny"]
    services = ["budgets.amazonaws.com", "cloudwatch.amazonaws.com"]
    assert [each["Principal"]["Service"] for each in allowed] == services
    ours = {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    assert [each["Condition"]["StringEquals"] for each in allowed] == [ours, ours]
    (alarm,) = allowed[1]["Condition"]["ArnLike"].values()
    assert alarm["Fn::Join"][1][-2:] == [{"Ref": "AWS::StackName"}, "-GuardBudgetRenewal-*"]
    assert [each["Condition"] for each in denied] == [{"Bool": {"aws:SecureTransport": "false"}}]
