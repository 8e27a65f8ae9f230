"""Keys of logs, metrics and alarms, each by itself."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.config import ClusterConfig, ConfigError
from stacks.config_keys.observability import RETENTIONS


def build(**values: Any) -> ClusterConfig:
    return ClusterConfig(ssh_cidr=("198.18.0.7/32",), **values)


def test_all_that_aws_bills_is_off_unless_asked_for() -> None:
    config = build()
    assert not (config.node_logs or config.node_metrics or config.dashboard or config.alarms)
    assert not config.has_agent


@pytest.mark.parametrize("key", ["node_logs", "node_metrics"])
def test_logs_and_metrics_each_take_an_agent(key: str) -> None:
    assert build(**{key: True}).has_agent


@pytest.mark.parametrize("days", RETENTIONS)
def test_every_retention_that_cloudwatch_knows_is_taken(days: int) -> None:
    assert build(log_retention_days=days).log_retention_days == days


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("log_retention_days", 31, "must be one of 1, 3, 5, 7, 14, 30"),
        ("log_retention_days", 0, "must be one of"),
        ("metrics_interval_s", 0, "must be 1 to 3600"),
        ("alarm_emails", ("ops@example.com", "ops"), "must be e-mail addresses"),
        ("alarm_emails", ("a b@example.com",), "must be e-mail addresses"),
        ("alarm_topic", "ops", "must be the ARN of a standard SNS topic"),
        ("alarm_topic", "arn:aws:sns:us-east-1:123456789012:queue.fifo", "must be the ARN of a standard SNS topic"),
        ("alarm_topic", "arn:aws:sqs:us-east-1:123456789012:ops", "must be the ARN of a standard SNS topic"),
    ],
)
def test_a_wrong_value_is_refused_with_key_and_rule(key: str, value: object, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(**{key: value})
    assert caught.value.key == key
    assert caught.value.rule.startswith(rule)


def test_addresses_are_given_as_one_text_on_the_command_line() -> None:
    context = {"ssh_cidr": "198.18.0.7/32", "alarms": "true", "alarm_emails": "a@example.com, b@example.com"}
    assert ClusterConfig.from_context(context).alarm_emails == ("a@example.com", "b@example.com")
