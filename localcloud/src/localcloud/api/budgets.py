"""What AWS Budgets refuses of a notification: two SNS topics, and an address twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from moto.budgets.models import BudgetsBackend
from moto.core.exceptions import JsonRESTError

from localcloud.api.monkeypatch import check_first


def apply() -> None:
    """Correct moto."""
    check_first(BudgetsBackend, "create_budget", _check_budget)
    check_first(BudgetsBackend, "create_notification", lambda _, **given: _check_subscribers(given["subscribers"]))


def _check_budget(budgets: Any, account_id: str, budget: Any, notifications: Iterable[Mapping[str, Any]]) -> None:
    for each in notifications or ():
        _check_subscribers(each["Subscribers"])


def _check_subscribers(subscribers: Iterable[Mapping[str, str]]) -> None:
    given = [(each["SubscriptionType"], each["Address"]) for each in subscribers]
    if sum(kind == "SNS" for kind, _ in given) > 1:
        raise JsonRESTError(
            "CreationLimitExceededException", "one notification can only have 1 subscribers with type of SNS"
        )
    if len(set(given)) < len(given):
        # The API reference has the error; no text of it was found.
        raise JsonRESTError("DuplicateRecordException", "The notification has this subscriber already.")
