"""What SNS refuses: a topic policy with actions that are not of topics, `sns:*` among them."""

from __future__ import annotations

from typing import Any, Final

from moto.sns.exceptions import SNSInvalidParameter
from moto.sns.models import SNSBackend

from localcloud.api.iam.documents import listed, statements
from localcloud.api.monkeypatch import check_first

_ACTIONS: Final = frozenset(
    action.lower()
    for action in (
        "SNS:AddPermission",
        "SNS:DeleteTopic",
        "SNS:GetDataProtectionPolicy",
        "SNS:GetTopicAttributes",
        "SNS:ListSubscriptionsByTopic",
        "SNS:ListTagsForResource",
        "SNS:Publish",
        "SNS:PutDataProtectionPolicy",
        "SNS:Receive",
        "SNS:RemovePermission",
        "SNS:SetTopicAttributes",
        "SNS:Subscribe",
    )
)
"""The actions of topics: SNS API permissions, in its developer guide, and those of a topic's default policy."""


def apply() -> None:
    """Correct moto."""
    check_first(SNSBackend, "set_topic_attribute", _check)


def _check(sns: Any, topic_arn: str, attribute_name: str, attribute_value: str) -> None:
    if attribute_name.lower() != "policy":
        return
    for statement in statements(attribute_value):
        if not {str(action).lower() for action in listed(statement.get("Action", []))} <= _ACTIONS:
            raise SNSInvalidParameter("Invalid parameter: Policy statement action out of service scope!")
