"""Resource type of budgets. They are kept and shown; as nothing costs anything here, none is ever spent.

What a budget does when it is spent is rehearsed by publishing to its topic, as AWS Budgets would.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localcloud.api.cloudformation.types.handlers import unless_gone
from localcloud.api.cloudformation.types.resource_type import Context, Physical, Properties, ResourceType

_NOTHING_IS_SPENT = "nothing costs anything here, so it is never reached; it is shown as it was given"


def _create(context: Context, properties: Properties) -> Physical:
    given: Mapping[str, Any] = properties["Budget"]
    name = given.get("BudgetName") or context.name(100)
    limit = {key: str(value) for key, value in given["BudgetLimit"].items()}
    context.aws.client("budgets").create_budget(
        AccountId=context.account,
        Budget={**given, "BudgetName": name, "BudgetLimit": limit},
        NotificationsWithSubscribers=[
            {
                "Notification": {**each["Notification"], "Threshold": float(each["Notification"]["Threshold"])},
                "Subscribers": list(each["Subscribers"]),
            }
            for each in properties.get("NotificationsWithSubscribers") or ()
        ],
    )
    return Physical(id=name)


def _update(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    """Recreate it under its name, which on AWS is a change in place: no counts can be lost.

    Other notifications or subscribers make another budget, on AWS as here.
    """
    _delete(context, resource, old)
    return _create(context, {**new, "Budget": {**new["Budget"], "BudgetName": resource.id}})


def _delete(context: Context, resource: Physical, properties: Properties) -> None:
    unless_gone(
        ("NotFoundException",),
        context.aws.client("budgets").delete_budget,
        AccountId=context.account,
        BudgetName=resource.id,
    )


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::Budgets::Budget",
        rules={
            "Budget.BudgetName": "unique",
            "NotificationsWithSubscribers": "one SNS subscriber for a notification, each address once",
        },
        honoured=frozenset({"Budget.BudgetName"}),
        inert={
            "Budget.BudgetLimit": _NOTHING_IS_SPENT,
            "Budget.BudgetType": _NOTHING_IS_SPENT,
            "Budget.TimeUnit": _NOTHING_IS_SPENT,
            "Budget.CostFilters": _NOTHING_IS_SPENT,
            "NotificationsWithSubscribers": _NOTHING_IS_SPENT,
            "ResourceTags": "budgets are found by name here",
        },
        replaced_by=frozenset({"NotificationsWithSubscribers"}),
        create=_create,
        update=_update,
        delete=_delete,
    ),
)
