"""Resource type of budgets. They are kept and shown; as nothing costs anything here, none is ever spent.

What a budget does when it is spent is rehearsed by publishing to its topic, as AWS Budgets would.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localcloud.api.cloudformation.types.resource_type import Kind, Made, Place, Properties, unless_gone

_NOTHING_IS_SPENT = "nothing costs anything here, so it is never reached; it is shown as it was given"


def _create(place: Place, properties: Properties) -> Made:
    given: Mapping[str, Any] = properties["Budget"]
    name = given.get("BudgetName") or place.name(100)
    limit = {key: str(value) for key, value in given["BudgetLimit"].items()}
    place.aws.client("budgets").create_budget(
        AccountId=place.account,
        Budget={**given, "BudgetName": name, "BudgetLimit": limit},
        NotificationsWithSubscribers=[
            {
                "Notification": {**each["Notification"], "Threshold": float(each["Notification"]["Threshold"])},
                "Subscribers": list(each["Subscribers"]),
            }
            for each in properties.get("NotificationsWithSubscribers") or ()
        ],
    )
    return Made(physical_id=name)


def _update(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    """Make it anew under its name, which on AWS is a change in place: nothing was counted that could be lost."""
    _delete(place, made, old)
    return _create(place, {**new, "Budget": {**new["Budget"], "BudgetName": made.physical_id}})


def _delete(place: Place, made: Made, properties: Properties) -> None:
    del properties
    unless_gone(
        ("NotFoundException",),
        place.aws.client("budgets").delete_budget,
        AccountId=place.account,
        BudgetName=made.physical_id,
    )


KINDS = (
    Kind(
        type="AWS::Budgets::Budget",
        carried_out=frozenset({"Budget.BudgetName"}),
        inert={
            "Budget.BudgetLimit": _NOTHING_IS_SPENT,
            "Budget.BudgetType": _NOTHING_IS_SPENT,
            "Budget.TimeUnit": _NOTHING_IS_SPENT,
            "Budget.CostFilters": _NOTHING_IS_SPENT,
            "NotificationsWithSubscribers": _NOTHING_IS_SPENT,
            "ResourceTags": "budgets are found by name here",
        },
        create=_create,
        update=_update,
        delete=_delete,
    ),
)
