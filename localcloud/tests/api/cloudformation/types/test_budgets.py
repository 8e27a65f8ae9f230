"""Budgets of a template are kept and shown."""

from __future__ import annotations

from typing import Any

from api.templates import Client, Stacks

ACCOUNT = "123456789012"


def budget(amount: int) -> dict[str, Any]:
    notification = {
        "NotificationType": "ACTUAL",
        "ComparisonOperator": "GREATER_THAN",
        "Threshold": 100,
        "ThresholdType": "PERCENTAGE",
    }
    return {
        "Budget": {
            "Type": "AWS::Budgets::Budget",
            "Properties": {
                "Budget": {
                    "BudgetType": "COST",
                    "TimeUnit": "MONTHLY",
                    "BudgetLimit": {"Amount": amount, "Unit": "USD"},
                    "CostFilters": {"TagKeyValue": ["user:deepcdk:cluster$one"]},
                },
                "NotificationsWithSubscribers": [
                    {
                        "Notification": notification,
                        "Subscribers": [{"SubscriptionType": "EMAIL", "Address": "ops@example.com"}],
                    }
                ],
            },
        }
    }


def test_a_budget_comes_changes_under_its_name_and_goes(client: Client, stacks: Stacks) -> None:
    def limits() -> dict[str, str]:
        found = client("budgets").describe_budgets(AccountId=ACCOUNT).get("Budgets", [])
        return {each["BudgetName"]: each["BudgetLimit"]["Amount"] for each in found}

    name = stacks.create(budget(500))
    physical = stacks.physical(name, "Budget")
    assert limits() == {physical: "500"}
    told = client("budgets").describe_notifications_for_budget(AccountId=ACCOUNT, BudgetName=physical)
    assert [each["Threshold"] for each in told["Notifications"]] == [100]
    stacks.update(name, budget(700))
    assert (stacks.physical(name, "Budget"), limits()) == (physical, {physical: "700"})
    stacks.delete(name)
    assert limits() == {}
