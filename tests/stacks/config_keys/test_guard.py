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


def test_by_default_a_cluster_has_no_bounds_and_nothing_hinders_its_removal() -> None:
    config = ClusterConfig(ssh_cidr=SSH_CIDR)
    assert not config.termination_protection and not config.protect_instances
    assert (config.idle_minutes, config.max_hours, config.budget_usd) == (0, 0, 0)
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
