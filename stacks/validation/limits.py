"""Rules for permissions, time and cost, and for notifications."""

from __future__ import annotations

from collections.abc import Iterator

from stacks.config import ClusterConfig
from stacks.instance_types import find
from stacks.validation.problem import Problem


def check(config: ClusterConfig) -> Iterator[Problem]:
    """Yield all problems with permissions, time, cost and notifications."""
    yield from _idle(config)
    yield from _hours(config)
    yield from _budget(config)
    yield from _protection(config)
    yield from _alarms(config)


def _idle(config: ClusterConfig) -> Iterator[Problem]:
    if not config.idle_minutes:
        if config.idle_cpu_percent:
            yield Problem(
                key="idle_cpu_percent",
                value=config.idle_cpu_percent,
                rule="says when a worker is idle, but idle_minutes = 0: idle workers are not stopped",
                remedy="set idle_minutes, or leave idle_cpu_percent out",
            )
        return
    unknown = config.allow_unknown_instance_types and find(config.worker_instance_type) is None
    if unknown and not config.idle_cpu_percent:
        yield Problem(
            key="idle_cpu_percent",
            value=config.idle_cpu_percent,
            rule=f"0 means half of one vCPU, and the table does not list how many {config.worker_instance_type} has",
            remedy="set the processor use, in percent of all vCPUs, below which a worker is idle, or idle_minutes = 0",
        )


def _hours(config: ClusterConfig) -> Iterator[Problem]:
    if config.max_hours and config.max_hours * 60 <= config.ready_min:
        yield Problem(
            key="max_hours",
            value=config.max_hours,
            rule=f"ends the workers within ready_timeout_min = {config.ready_min}, perhaps before they are up",
            remedy="set more hours, or fewer minutes to get ready",
        )


def _budget(config: ClusterConfig) -> Iterator[Problem]:
    if config.budget_emails and not config.budget_usd:
        yield Problem(
            key="budget_emails",
            value=config.budget_emails,
            rule="are notified of a budget, but budget_usd = 0: there is none",
            remedy="set budget_usd, or leave budget_emails out",
        )
    yield from _repeated_addresses("budget_emails", config.budget_emails)
    if config.budget_usd and not config.budget_emails and not config.budget_stops_workers:
        yield Problem(
            key="budget_usd",
            value=config.budget_usd,
            rule="notifies nobody and stops nothing",
            remedy="set budget_emails, or budget_stops_workers = true",
        )


def _protection(config: ClusterConfig) -> Iterator[Problem]:
    """Reject what EC2 rejects: "You can't enable termination protection for Spot Instances" (EC2 User Guide)."""
    if config.protect_instances and config.spot:
        yield Problem(
            key="protect_instances",
            value=True,
            rule="EC2 protects no spot instance from termination, and spot = true",
            remedy="set protect_instances = false, or spot = false",
        )


def _alarms(config: ClusterConfig) -> Iterator[Problem]:
    for key in ("alarm_emails", "alarm_topic"):
        if getattr(config, key) and not config.alarms:
            yield Problem(
                key=key,
                value=getattr(config, key),
                rule="says who is notified of alarms, but alarms is false, so there are none",
                remedy="set alarms = true, or leave it out",
            )
    yield from _repeated_addresses("alarm_emails", config.alarm_emails)


def _repeated_addresses(key: str, addresses: tuple[str, ...]) -> Iterator[Problem]:
    repeated = sorted({address for address in addresses if addresses.count(address) > 1})
    if repeated:
        yield Problem(
            key=key,
            value=addresses,
            rule=f"names {', '.join(repeated)} more than once",
            remedy="name each address once",
        )
