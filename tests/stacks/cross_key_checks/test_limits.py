"""Rules that involve several keys of the limits."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.config import ClusterConfig
from stacks.cross_key_checks.limits import check
from tests.stacks.clusters.eight import SSH_CIDR


@pytest.mark.parametrize(
    "values",
    [
        {"idle_minutes": 30, "idle_cpu_percent": 5.0, "worker_instance_type": "p3.16xlarge"},
        {"max_hours": 0.5, "ready_timeout_min": 29},
        {"budget_usd": 5.0, "budget_stops_workers": False, "budget_emails": ("ops@example.com",)},
        {"budget_usd": 5.0},
        {"protect_instances": True},
        {"idle_minutes": 30, "max_hours": 12.0, "budget_usd": 500.0},
    ],
)
def test_values_at_their_limits_are_accepted(values: dict[str, Any]) -> None:
    assert list(check(ClusterConfig(ssh_cidr=SSH_CIDR, allow_unknown_instance_types=True, **values))) == []


@pytest.mark.parametrize(
    ("key", "values", "rule", "remedy"),
    [
        (
            "idle_cpu_percent",
            {"idle_minutes": 30, "worker_instance_type": "p3.16xlarge", "allow_unknown_instance_types": True},
            "0 means half of one vCPU, but the number of vCPUs of p3.16xlarge is unknown",
            "set the CPU use, in percent of all vCPUs, below which a worker is idle; or set idle_minutes = 0",
        ),
        (
            "max_hours",
            {"max_hours": 0.5, "ready_timeout_min": 30},
            "would terminate workers that are still booting, because a boot may take 30 minutes",
            "increase max_hours, or set ready_timeout_min to less than 30",
        ),
        (
            "budget_usd",
            {"budget_usd": 5.0, "budget_stops_workers": False},
            "has no effect: there are no addresses to notify, and workers are not stopped",
            "set budget_emails, or budget_stops_workers = true",
        ),
        (
            "budget_emails",
            {"budget_usd": 5.0, "budget_emails": ("b@example.com", "a@example.com") * 2},
            "lists a@example.com, b@example.com more than once",
            "list each address once",
        ),
        (
            "protect_instances",
            {"protect_instances": True, "spot": True},
            "EC2 cannot protect spot instances from termination, and spot = true",
            "set protect_instances = false, or spot = false",
        ),
    ],
)
def test_problem_shows_value_and_fix(key: str, values: dict[str, Any], rule: str, remedy: str) -> None:
    config = ClusterConfig(ssh_cidr=SSH_CIDR, **values)
    (problem,) = check(config)
    assert (problem.key, problem.value) == (key, getattr(config, key))
    assert (problem.rule, problem.remedy) == (rule, remedy)


def test_duplicate_address_is_rejected() -> None:
    mails = ("a@example.com", "b@example.com", "a@example.com")
    assert [each.key for each in check(ClusterConfig(ssh_cidr=SSH_CIDR, alarms=True, alarm_emails=mails))] == [
        "alarm_emails"
    ]
