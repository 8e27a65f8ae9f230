"""Values of the guard's keys that are wrong by themselves are refused with key, value and rule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.config import ClusterConfig, ConfigError
from tests.stacks.conftest import SSH_CIDR


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"permissions_boundary": "boundary"}, "the ARN of an IAM policy, or empty"),
        ({"permissions_boundary": "arn:aws:iam::123456789012:role/boundary"}, "the ARN of an IAM policy, or empty"),
        ({"tags": ("team",)}, "KEY=VALUE"),
        ({"tags": ("=vision",)}, "KEY=VALUE"),
        ({"tags": ("team=a;b",)}, "KEY=VALUE"),
        ({"tags": ("team=a\nb",)}, "KEY=VALUE"),
        ({"tags": ("aws:team=a",)}, "must not be Name"),
        ({"tags": ("AWS:team=a",)}, "must not be Name"),
        ({"tags": ("deepcdk:role=a",)}, "must not be Name"),
        ({"tags": ("Name=a",)}, "must not be Name"),
        ({"tags": ("team=a", "team=b")}, "must not come twice"),
        ({"tags": ("Team=a", "team=b")}, "to IAM, Team and team are one key"),
        ({"tags": ("k" * 128 + "=a",)}, "1 to 127 characters"),
        ({"tags": tuple(f"{n:0100}={'v' * 128}" for n in range(36))}, "a template has 1 MB"),
        ({"tags": ("k=" + "a" * 257,)}, "a value 1 to 256"),
        ({"tags": tuple(f"k{n}=a" for n in range(41))}, "40 at most"),
        ({"idle_minutes": 5}, "multiple of 5"),
        ({"idle_minutes": 12}, "multiple of 5"),
        ({"idle_minutes": -10}, "multiple of 5"),
        ({"idle_minutes": 1435}, "multiple of 5"),
        ({"idle_cpu_percent": 101.0}, "must be 0 to 100"),
        ({"max_hours": 0.4}, "0.5 to 168"),
        ({"max_hours": 169.0}, "0.5 to 168"),
        ({"max_hours": -1.0}, "0.5 to 168"),
        ({"max_hours": 24.5}, "a whole number beyond 24"),
        ({"max_hours": 1.01}, "multiple of five minutes"),
        ({"budget_usd": -1.0}, "must be 0 to"),
        ({"budget_usd": 0.009}, "0.01 and more"),
        ({"budget_scope": "team"}, "account, cluster"),
        ({"budget_emails": ("nobody",)}, "e-mail addresses"),
        ({"budget_emails": tuple(f"n{n}@example.com" for n in range(11))}, "10 at most"),
    ],
)
def test_a_wrong_value_is_refused_with_its_rule(values: dict[str, Any], rule: str) -> None:
    (key,) = values
    with pytest.raises(ConfigError) as caught:
        ClusterConfig(ssh_cidr=SSH_CIDR, **values)
    assert caught.value.key == key
    assert rule in caught.value.rule


def test_tags_are_read_by_key_and_a_value_may_hold_an_equals_sign() -> None:
    config = ClusterConfig(ssh_cidr=SSH_CIDR, tags=("team=vision", "query=a=b"))
    assert config.tag_values == {"team": "vision", "query": "a=b"}


@given(st.integers(6, 288).map(lambda periods: periods / 12) | st.integers(25, 168).map(float))
def test_hours_in_steps_of_five_minutes_are_taken(hours: float) -> None:
    assert ClusterConfig(ssh_cidr=SSH_CIDR, max_hours=hours).max_hours == hours


@given(st.integers(2, 286).map(lambda periods: periods * 5))
def test_idle_minutes_in_steps_of_five_are_taken(minutes: int) -> None:
    assert ClusterConfig(ssh_cidr=SSH_CIDR, idle_minutes=minutes).idle_minutes == minutes


def test_by_default_idle_workers_end_within_an_hour_and_nothing_hinders_the_removal() -> None:
    config = ClusterConfig(ssh_cidr=SSH_CIDR)
    assert not config.termination_protection and not config.protect_instances
    assert (config.idle_minutes, config.max_hours, config.budget_usd) == (60, 0, 0)
    assert (config.permissions_boundary, config.tags, config.budget_emails) == ("", (), ())
    assert config.budget_stops_workers, "a budget that is set stops the workers unless the user says otherwise"


@pytest.mark.parametrize(
    "values",
    [
        {"permissions_boundary": "arn:aws:iam::123456789012:policy/team/boundary"},
        {"permissions_boundary": "arn:aws-us-gov:iam::aws:policy/PowerUserAccess"},
        {"tags": ("k" * 127 + "=a", "k=" + "a" * 256)},
        {"tags": tuple(f"{n:0100}={'v' * 99}" for n in range(40))},
        {"tags": ("named=a", "Names=b", "aws=c", "team:deepcdk:=d")},
        {"tags": tuple(f"k{n}=a" for n in range(40))},
        {"idle_cpu_percent": 100.0},
        {"budget_usd": 1e9},
        {"budget_usd": 0.01},
        {"budget_scope": "cluster"},
        {"budget_emails": tuple(f"n{n}@example.com" for n in range(10))},
    ],
)
def test_the_widest_values_are_taken(values: dict[str, Any]) -> None:
    ((key, value),) = values.items()
    assert getattr(ClusterConfig(ssh_cidr=SSH_CIDR, **values), key) == value


TAG = "must be KEY=VALUE of letters, digits, spaces and _ . : / = + @ -"
IDLE = "must be 0, or 10 to 1430 and a multiple of 5, the minutes between two metrics of EC2"
HOURS = "must be 0, or 0.5 to 168: CloudWatch looks back a week at most"


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"permissions_boundary": "boundary"}, "must be the ARN of an IAM policy, or empty"),
        ({"tags": ("team",)}, TAG),
        ({"tags": ("team=a;b",)}, TAG),
        ({"tags": ("te;am=a",)}, TAG),
        ({"tags": ("aws:team=a",)}, "the key must not be Name, nor begin with aws: or deepcdk:"),
        ({"tags": ("k" * 129 + "=a",)}, "a key has 1 to 127 characters, a value 1 to 256"),
        ({"tags": ("team=a", "team=b")}, "a key must not come twice; to IAM, Team and team are one key"),
        ({"tags": tuple(f"k{n}=a" for n in range(41))}, "must be 40 at most"),
        ({"idle_minutes": 5}, IDLE),
        ({"idle_minutes": 1435}, IDLE),
        ({"max_hours": 0.4}, HOURS),
        ({"max_hours": 24.5}, "must be a whole number beyond 24"),
        ({"max_hours": 1.01}, "must be a multiple of five minutes, such as 0.5, 0.75 or 1.25"),
        ({"idle_cpu_percent": -1.0}, "must be 0 to 100"),
        ({"budget_usd": 1e9 + 1}, "must be 0 to 1000000000.0"),
        ({"budget_scope": "team"}, "must be one of account, cluster"),
        ({"budget_emails": ("nobody",)}, "must be e-mail addresses"),
        (
            {"budget_emails": tuple(f"n{n}@example.com" for n in range(11))},
            "must be 10 at most, as AWS Budgets has it",
        ),
    ],
)
def test_the_rule_is_told_in_full(values: dict[str, Any], rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ClusterConfig(ssh_cidr=SSH_CIDR, **values)
    assert caught.value.rule == rule


def test_too_many_tags_are_counted_and_any_other_wrong_value_is_shown() -> None:
    for values, shown in (
        ({"tags": tuple(f"k{n}=a" for n in range(41))}, "41 tags"),
        ({"tags": ("team=a", "Name=b")}, "Name=b"),
        ({"tags": ("team=a", "team=b")}, ("team=a", "team=b")),
        ({"idle_minutes": 5}, 5),
        ({"max_hours": 1.01}, 1.01),
        ({"max_hours": 24.5}, 24.5),
        ({"max_hours": 169.0}, 169.0),
    ):
        with pytest.raises(ConfigError) as caught:
            ClusterConfig(ssh_cidr=SSH_CIDR, **values)
        assert caught.value.value == shown


def test_nothing_else_is_switched_on_by_default() -> None:
    config = ClusterConfig(ssh_cidr=SSH_CIDR)
    assert (config.termination_protection, config.protect_instances) == (False, False)
    assert (config.idle_cpu_percent, config.budget_scope) == (0, "account")
