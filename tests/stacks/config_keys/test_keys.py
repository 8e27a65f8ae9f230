"""Single values of cdk.json: extreme values are accepted, and the next ones are rejected with the name of the key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.config import ConfigError
from stacks.config_keys.observability import RETENTIONS
from tests.stacks.test_config import build

VPC = "vpc-0123456789abcdef0"


def many(kind: str, count: int) -> tuple[str, ...]:
    return tuple(f"{kind}-{number:08x}" for number in range(count))


def mails(count: int) -> tuple[str, ...]:
    return tuple(f"n{number}@example.com" for number in range(count))


@pytest.mark.parametrize(
    "values",
    [
        {"ssh_prefix_lists": many("pl", 200)},
        {"ssh_cidr": ("198.18.0.7/32", "198.0.0.0/8")},
        {"ssh_cidr": ("0.0.0.0/0",), "ssh_from_anywhere": True},
        {"vpc_cidr": "10.0.0.0/24"},
        {"vpc_cidr": "172.16.0.0/20"},
        {"vpc_id": VPC, "availability_zones": 6, "private_subnet_ids": many("subnet", 6)},
        {"vpc_id": VPC, "vpc_cidr": "100.64.0.0/28"},
        {"vpc_id": "vpc-01234567", "vpc_cidr": "198.51.0.0/16"},
        {"vpc_endpoints": ("s3", "ssm", "ecr", "logs"), "nat_gateways": "one-per-zone", "availability_zones": 2},
        {"zones": ("us-gov-west-1a", "cn-northwest-1c"), "availability_zones": 2},
        {"zones": ("eusc-de-east-1a",)},
        {"zones": ("us-iso-east-1a",)},
        {"zones": ("us-isob-east-1b",)},
        {"zones": ("us-isof-south-1a",)},
        {"zones": ("eu-isoe-west-1a",)},
        {"flow_logs": "arn:aws-us-gov:s3:::abc/of/deep_cdk=1."},
        {"flow_logs": "arn:aws:s3:::my-flow-logs/AWSLogsOld"},
        {"permissions_boundary": "arn:aws-us-gov:iam::aws:policy/PowerUserAccess"},
        {"tags": ("k" * 127 + "=a", "k=" + "a" * 256, "named=a=b", "Names=b", "aws=c", "team:deepcdk:=d")},
        {"tags": tuple(f"{n:0100}={'v' * 99}" for n in range(40))},
        {"idle_cpu_percent": 100.0, "budget_usd": 1e9, "budget_scope": "cluster", "budget_emails": mails(10)},
        {"budget_usd": 0.01, "alarm_emails": mails(100), "metrics_interval_s": 3600},
    ],
)
def test_extreme_values_are_accepted(values: dict[str, Any]) -> None:
    config = build(**values)
    assert {key: getattr(config, key) for key in values} == values


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"ssh_cidr": "0.0.0.0/0"}, "the whole internet; set your own address as a /32, or confirm"),
        ({"ssh_cidr": "198.0.0.0/7"}, "33,554,432 addresses"),
        ({"ssh_cidr": ["198.18.0.7/32", "198.18.0.7/32"]}, "is listed twice"),
        ({"ssh_prefix_lists": many("pl", 201)}, "must list at most 200"),
        ({"availability_zones": 3}, "must be 1 to 2 (6 with vpc_id)"),
        ({"workers": 17}, "must be 0 to 16 (the value of max_workers)"),
        ({"availability_zones": 7, "vpc_id": VPC}, "must be 1 to 6"),
        ({"vpc_cidr": "10.0.0.0/15"}, "must be a /16 to /24"),
        ({"vpc_cidr": "10.0.0.0/25"}, "must be a /16 to /24"),
        ({"vpc_cidr": "10.0.0.0/29", "vpc_id": VPC}, "must be a /16 to /28"),
        ({"vpc_cidr": "198.51.0.0/16"}, "must be a private network"),
        ({"vpc_cidr": "127.0.0.0/16"}, "is within 127.0.0.0/8"),
        ({"vpc_cidr": "169.254.0.0/16"}, "is within 169.254.0.0/16"),
        ({"vpc_id": "vpc-0123456"}, "must be a VPC such as vpc-0123456789abcdef0"),
        ({"public_subnet_ids": many("subnet", 7), "vpc_id": VPC}, "must list at most 6"),
        ({"flow_logs": "on"}, "must be off, log-group, or the ARN of a bucket"),
        ({"flow_logs": "arn:aws:s3:::my-flow-logs/of/AWSLogs/"}, "without the folder AWSLogs"),
        ({"permissions_boundary": "arn:aws:iam::123456789012:role/boundary"}, "the ARN of an IAM policy"),
        ({"tags": ("te;am=a",)}, "must be KEY=VALUE"),
        ({"tags": ("team=a\nb",)}, "must be KEY=VALUE"),
        ({"tags": ("AWS:team=a",)}, "must not be Name, and must not begin with aws: or deepcdk:"),
        ({"tags": ("Name=a",)}, "must not be Name"),
        ({"tags": ("Team=a", "team=b")}, "IAM ignores case, so Team and team are the same key"),
        ({"tags": ("k" * 128 + "=a",)}, "1 to 127 characters"),
        ({"tags": ("k=" + "a" * 257,)}, "the value 1 to 256"),
        ({"tags": tuple(f"{n:0100}={'v' * 128}" for n in range(36))}, "a template has 1 MB"),
        ({"tags": tuple(f"k{n}=a" for n in range(41))}, "at most 40"),
        ({"idle_minutes": 5}, "a multiple of 5 from 10 to 1430"),
        ({"idle_minutes": 1435}, "10 to 1430"),
        ({"max_hours": 0.4}, "0.5 to 168"),
        ({"max_hours": 169.0}, "0.5 to 168"),
        ({"max_hours": 24.5}, "a whole number if it is more than 24"),
        ({"max_hours": 1.01}, "a multiple of five minutes"),
        ({"budget_usd": 0.009}, "at least 0.01"),
        ({"budget_emails": mails(11)}, "at most 10"),
        ({"alarm_emails": mails(101)}, "at most 100"),
        ({"alarm_emails": ("ops@example.com", "ops")}, "must be an e-mail address"),
        ({"alarm_topic": "arn:aws:sns:us-east-1:123456789012:queue.fifo"}, "a standard SNS topic"),
        ({"kms_key": "arn:aws:kms:us-east-1:123456789012:alias/mine"}, "not of an alias"),
        ({"capacity_policy": "at-least 1.5"}, "all, or at-least and a number"),
        ({"termination_notice_s": 29}, "must be 30 to 7200"),
    ],
)
def test_first_value_out_of_range_is_rejected_with_its_key(values: dict[str, Any], rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(**values)
    assert caught.value.key == next(iter(values))
    assert rule in caught.value.rule


@given(st.integers(6, 288).map(lambda periods: periods / 12) | st.integers(25, 168).map(float))
def test_hours_in_steps_of_five_minutes_are_accepted(hours: float) -> None:
    assert build(max_hours=hours).max_hours == hours


@given(st.integers(2, 286).map(lambda periods: periods * 5))
def test_idle_minutes_in_steps_of_five_are_accepted(minutes: int) -> None:
    assert build(idle_minutes=minutes).idle_minutes == minutes


def test_every_retention_of_cloudwatch_is_accepted() -> None:
    assert [build(log_retention_days=days).log_retention_days for days in RETENTIONS] == list(RETENTIONS)


def test_billed_features_and_data_removal_are_off_by_default() -> None:
    config = build()
    assert not (config.node_logs or config.node_metrics or config.dashboard or config.alarms or config.has_agent)
    assert not (config.efs_infrequent_after_days or config.efs_backup or config.bucket_expire_runs_days)
    assert config.retain_data and config.bucket_versioning
    assert config.idle_minutes == 60, "idle workers are terminated after an hour"


def test_logs_and_metrics_each_require_the_agent() -> None:
    assert build(node_logs=True).has_agent
    assert build(node_metrics=True).has_agent


def test_subnets_fit_into_the_vpc() -> None:
    for cidr, public, private in (("10.0.0.0/16", 24, 18), ("10.0.0.0/20", 28, 22), ("10.0.0.0/24", 28, 26)):
        config = build(vpc_cidr=cidr)
        assert (config.public_prefix, config.private_prefix) == (public, private)
