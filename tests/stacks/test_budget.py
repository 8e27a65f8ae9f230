"""The budget in the template, and the way of its word to an alarm."""

from __future__ import annotations

from typing import Any

from tests.stacks.clusters.template import Template
from tests.stacks.conftest import Synthesise


def budget(template: Template) -> dict[str, Any]:
    (found,) = template.of("AWS::Budgets::Budget").values()
    return found


def told(template: Template) -> set[tuple[str, float, str]]:
    """Return what is told to whom: kind and percent, and the kind of the subscriber."""
    return {
        (each["Notification"]["NotificationType"], each["Notification"]["Threshold"], subscriber["SubscriptionType"])
        for each in budget(template)["NotificationsWithSubscribers"]
        for subscriber in each["Subscribers"]
    }


def test_a_spent_budget_reaches_the_alarm_that_ends_the_workers(synthesise: Synthesise) -> None:
    template = synthesise(budget_usd=500.0)
    topic = template.only("AWS::SNS::Topic")
    assert told(template) == {("ACTUAL", 100, "SNS")}
    (notification,) = budget(template)["NotificationsWithSubscribers"]
    assert notification["Subscribers"][0]["Address"] == {"Ref": topic}
    (subscription,) = template.of("AWS::SNS::Subscription").values()
    assert (subscription["TopicArn"], subscription["Endpoint"]["Fn::GetAtt"][0]) == ({"Ref": topic}, "GuardBudgetSpent")
    alarm = template.of("AWS::CloudWatch::Alarm")["GuardBudget"]
    assert alarm["Dimensions"][0]["Value"] == {"Fn::GetAtt": ["GuardBudgetSpent", "QueueName"]}


def test_a_budget_is_made_after_the_policy_that_lets_it_publish_to_its_topic(synthesise: Synthesise) -> None:
    template = synthesise(budget_usd=500.0)
    (made,) = (item for item in template.resources.values() if item["Type"] == "AWS::Budgets::Budget")
    assert template.only("AWS::SNS::TopicPolicy") in made["DependsOn"]


def test_people_are_told_before_it_is_spent(synthesise: Synthesise) -> None:
    template = synthesise(budget_usd=500.0, budget_emails=("ops@example.com",))
    emails = {each for each in told(template) if each[2] == "EMAIL"}
    assert emails == {("ACTUAL", 80, "EMAIL"), ("ACTUAL", 100, "EMAIL"), ("FORECASTED", 100, "EMAIL")}


def test_a_budget_that_only_tells_stops_nothing(synthesise: Synthesise) -> None:
    told_alone = {"budget_emails": ("ops@example.com",), "budget_stops_workers": False}
    template = synthesise(budget_usd=500.0, idle_minutes=0, **told_alone)
    kinds = {item["Type"] for item in template.resources.values()}
    assert not kinds & {"AWS::SNS::Topic", "AWS::SQS::Queue", "AWS::CloudWatch::Alarm"}
    assert {each[2] for each in told(template)} == {"EMAIL"}


def test_it_counts_the_account_or_what_carries_the_clusters_tag(synthesise: Synthesise) -> None:
    whole = budget(synthesise(budget_usd=500.0))["Budget"]
    assert (whole["BudgetLimit"], whole["TimeUnit"]) == ({"Amount": 500, "Unit": "USD"}, "MONTHLY")
    assert "CostFilters" not in whole
    own = budget(synthesise(budget_usd=500.0, budget_scope="cluster", name="other"))["Budget"]
    assert own["CostFilters"] == {"TagKeyValue": ["user:deepcdk:cluster$other"]}


def test_the_word_stays_in_the_queue_as_long_as_sqs_keeps_it(synthesise: Synthesise) -> None:
    queue = synthesise(budget_usd=500.0).of("AWS::SQS::Queue")["GuardBudgetSpent"]
    assert queue["MessageRetentionPeriod"] == 1209600
    assert queue["SqsManagedSseEnabled"]


def test_another_message_is_sent_before_the_oldest_one_expires(synthesise: Synthesise) -> None:
    template = synthesise(budget_usd=500.0)
    alarm = template.of("AWS::CloudWatch::Alarm")["GuardBudgetRenewal"]
    assert alarm["Dimensions"][0]["Value"] == {"Fn::GetAtt": ["GuardBudgetSpent", "QueueName"]}
    assert alarm["AlarmActions"] == [{"Ref": template.only("AWS::SNS::Topic")}]
    held = template.of("AWS::SQS::Queue")["GuardBudgetSpent"]["MessageRetentionPeriod"]
    assert held - alarm["Threshold"] >= 24 * alarm["Period"] * alarm["EvaluationPeriods"]


def test_only_this_accounts_budgets_may_tell_and_only_over_tls(synthesise: Synthesise) -> None:
    (policy,) = synthesise(budget_usd=500.0).of("AWS::SNS::TopicPolicy").values()
    allowed = [each for each in policy["PolicyDocument"]["Statement"] if each["Effect"] == "Allow"]
    denied = [each for each in policy["PolicyDocument"]["Statement"] if each["Effect"] == "Deny"]
    tellers = ["budgets.amazonaws.com", "cloudwatch.amazonaws.com"]
    assert [each["Principal"]["Service"] for each in allowed] == tellers
    ours = {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    assert [each["Condition"]["StringEquals"] for each in allowed] == [ours, ours]
    (alarm,) = allowed[1]["Condition"]["ArnLike"].values()
    assert alarm["Fn::Join"][1][-2:] == [{"Ref": "AWS::StackName"}, "-GuardBudgetRenewal-*"]
    assert [each["Condition"] for each in denied] == [{"Bool": {"aws:SecureTransport": "false"}}]
