"""Rules that bind several of the guard's values."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.config import ClusterConfig
from stacks.validation.guard import check
from tests.stacks.conftest import SSH_CIDR


@pytest.mark.parametrize(
    ("values", "key", "rule"),
    [
        ({"idle_cpu_percent": 2.0}, "idle_cpu_percent", "idle_minutes = 0"),
        (
            {"idle_minutes": 30, "worker_instance_type": "p3.16xlarge", "allow_unknown_instance_types": True},
            "idle_cpu_percent",
            "does not list how many p3.16xlarge",
        ),
        ({"max_hours": 0.5, "ready_timeout_min": 30}, "max_hours", "ready_timeout_min = 30"),
        ({"budget_emails": ("ops@example.com",)}, "budget_emails", "budget_usd = 0"),
        ({"budget_usd": 5.0, "budget_stops_workers": False}, "budget_usd", "notifies nobody and stops nothing"),
        (
            {"budget_usd": 5.0, "budget_emails": ("a@example.com", "b@example.com", "a@example.com")},
            "budget_emails",
            "names a@example.com more than once",
        ),
        ({"protect_instances": True, "spot": True}, "protect_instances", "protects no spot instance"),
    ],
)
def test_a_broken_rule_is_told_with_its_key(values: dict[str, Any], key: str, rule: str) -> None:
    (problem,) = check(ClusterConfig(ssh_cidr=SSH_CIDR, **values))
    assert problem.key == key
    assert rule in problem.rule


def test_bounds_that_fit_together_are_taken() -> None:
    values: dict[str, Any] = {"idle_minutes": 30, "max_hours": 12.0, "budget_usd": 500.0}
    assert list(check(ClusterConfig(ssh_cidr=SSH_CIDR, **values))) == []


@pytest.mark.parametrize(
    "values",
    [
        {"idle_minutes": 30, "idle_cpu_percent": 5.0, "worker_instance_type": "p3.16xlarge"},
        {"max_hours": 0.5, "ready_timeout_min": 29},
        {"budget_usd": 5.0, "budget_stops_workers": False, "budget_emails": ("ops@example.com",)},
        {"budget_usd": 5.0},
        {"protect_instances": True},
    ],
)
def test_what_just_fits_together_is_taken(values: dict[str, Any]) -> None:
    assert list(check(ClusterConfig(ssh_cidr=SSH_CIDR, allow_unknown_instance_types=True, **values))) == []
