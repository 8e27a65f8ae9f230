"""What SQS refuses: a policy of principals that do not exist, and the name of a queue that was deleted just now."""

from __future__ import annotations

import time
from typing import Any, Final

from moto.core.exceptions import ServiceException
from moto.iam.models import iam_backends
from moto.sqs import models

from localcloud.api.iam.documents import missing_principals
from localcloud.api.monkeypatch import check_first

_PAUSE_S: Final = 60.0


class QueueDeletedRecently(ServiceException):
    """Refuse a queue's name so soon after the deletion of another of that name."""

    code = "QueueDeletedRecently"
    message = "You must wait 60 seconds after deleting a queue before you can create another with the same name."


class InvalidAttributeValue(ServiceException):
    """Refuse the value of a queue's attribute."""

    code = "InvalidAttributeValue"


def apply() -> None:
    """Correct moto."""
    check_first(models.SQSBackend, "delete_queue", _note_deletion)
    check_first(models.SQSBackend, "create_queue", _check_creation)
    check_first(models.SQSBackend, "set_queue_attributes", lambda sqs, name, attributes: _check_policy(sqs, attributes))


def _deletions(sqs: Any) -> dict[str, float]:
    found: dict[str, float] = sqs.__dict__.setdefault("_deleted", {})
    return found


def _note_deletion(sqs: Any, queue_name: str) -> None:
    _deletions(sqs)[queue_name] = time.monotonic()


def _check_creation(sqs: Any, name: str, tags: Any = None, **attributes: Any) -> None:
    if time.monotonic() - _deletions(sqs).get(name, -_PAUSE_S) < _PAUSE_S:
        raise QueueDeletedRecently
    _check_policy(sqs, attributes)


def _check_policy(sqs: Any, attributes: dict[str, Any]) -> None:
    policy = attributes.get("Policy") or attributes.get("policy")
    if policy and any(missing_principals(iam_backends[sqs.account_id]["aws"], sqs.account_id, policy)):
        raise InvalidAttributeValue("Invalid value for the parameter Policy.")
