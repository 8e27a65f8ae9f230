"""A budget that notifies and stops nothing, which the committed templates do not show."""

from __future__ import annotations

from tests.stacks.conftest import Variant


def test_it_counts_the_account_and_mails_three_times(variant: Variant) -> None:
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
