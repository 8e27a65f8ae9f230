"""Rules of logs, metrics and alarms that bind several values."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.config import ClusterConfig
from stacks.validation.observability import check

TOPIC = "arn:aws:sns:us-east-1:123456789012:ops"


def keys(**values: Any) -> list[str]:
    return [problem.key for problem in check(ClusterConfig(ssh_cidr=("198.18.0.7/32",), **values))]


@pytest.mark.parametrize(("key", "value"), [("alarm_emails", ("a@example.com",)), ("alarm_topic", TOPIC)])
def test_nobody_can_be_told_of_alarms_that_are_not_made(key: str, value: object) -> None:
    assert keys(**{key: value}) == [key]
    assert keys(**{key: value}, alarms=True) == []


def test_alarms_may_tell_addresses_and_a_topic_or_nobody() -> None:
    assert keys(alarms=True) == []
    assert keys(alarms=True, alarm_emails=("a@example.com", "b@example.com"), alarm_topic=TOPIC) == []


def test_an_address_that_is_named_twice_would_be_subscribed_twice() -> None:
    assert keys(alarms=True, alarm_emails=("a@example.com", "b@example.com", "a@example.com")) == ["alarm_emails"]
