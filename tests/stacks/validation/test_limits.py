"""Rules that bind several of the limits' values."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.config import ClusterConfig
from stacks.validation.limits import check
from tests.stacks.clusters.eight import SSH_CIDR


@pytest.mark.parametrize(
    ("values", "key", "rule"),
    [
        ({"idle_minutes": 0, "idle_cpu_percent": 2.0}, "idle_cpu_percent", "idle_minutes = 0"),
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


@pytest.mark.parametrize(
    ("values", "rule", "remedy"),
    [
        (
            {"idle_minutes": 0, "idle_cpu_percent": 2.0},
            "says when a worker is idle, but idle_minutes = 0: idle workers are not stopped",
            "set idle_minutes, or leave idle_cpu_percent out",
        ),
        (
            {"idle_minutes": 30, "worker_instance_type": "p3.16xlarge", "allow_unknown_instance_types": True},
            "0 means half of one vCPU, and the table does not list how many p3.16xlarge has",
            "set the processor use, in percent of all vCPUs, below which a worker is idle, or idle_minutes = 0",
        ),
        (
            {"max_hours": 0.5, "ready_timeout_min": 30},
            "ends the workers within ready_timeout_min = 30, perhaps before they are up",
            "set more hours, or fewer minutes to get ready",
        ),
        (
            {"budget_emails": ("ops@example.com",)},
            "are notified of a budget, but budget_usd = 0: there is none",
            "set budget_usd, or leave budget_emails out",
        ),
        (
            {"budget_usd": 5.0, "budget_stops_workers": False},
            "notifies nobody and stops nothing",
            "set budget_emails, or budget_stops_workers = true",
        ),
        (
            {"budget_usd": 5.0, "budget_emails": ("b@example.com", "a@example.com") * 2},
            "names a@example.com, b@example.com more than once",
            "name each address once",
        ),
        (
            {"protect_instances": True, "spot": True},
            "EC2 protects no spot instance from termination, and spot = true",
            "set protect_instances = false, or spot = false",
        ),
    ],
)
def test_a_problem_shows_the_value_and_says_what_to_set(values: dict[str, Any], rule: str, remedy: str) -> None:
    config = ClusterConfig(ssh_cidr=SSH_CIDR, **values)
    (problem,) = check(config)
    assert (problem.rule, problem.remedy) == (rule, remedy)
    assert problem.value == getattr(config, problem.key)
