"""Rules for limits on time and cost, termination protection and notifications."""

from __future__ import annotations

from collections.abc import Iterator

from stacks.config import ClusterConfig
from stacks.cross_key_checks.problem import Problem, unused
from stacks.instance_types import find


def check(config: ClusterConfig) -> Iterator[Problem]:
    """Yield all problems with limits on time and cost, termination protection and notifications."""
    yield from _idle(config)
    yield from _hours(config)
    yield from _budget(config)
    yield from _protection(config)
    yield from _alarms(config)


def _idle(config: ClusterConfig) -> Iterator[Problem]:
    if not config.idle_minutes:
        why = "with idle_minutes = 0, which never stops idle workers"
        yield from unused(config, ["idle_cpu_percent"], why, "set idle_minutes")
        return
    unknown = config.allow_unknown_instance_types and find(config.worker_instance_type) is None
    if unknown and not config.idle_cpu_percent:
        yield Problem(
            key="idle_cpu_percent",
            value=config.idle_cpu_percent,
            rule=f"0 means half of one vCPU, but the number of vCPUs of {config.worker_instance_type} is unknown",
            remedy="set the CPU use, in percent of all vCPUs, below which a worker is idle; or set idle_minutes = 0",
        )


def _hours(config: ClusterConfig) -> Iterator[Problem]:
    if config.max_hours and config.max_hours * 60 <= config.ready_min:
        yield Problem(
            key="max_hours",
            value=config.max_hours,
            rule=f"would terminate workers that are still booting, because a boot may take {config.ready_min} minutes",
            remedy=f"increase max_hours, or set ready_timeout_min to less than {config.max_hours * 60:g}",
        )


def _budget(config: ClusterConfig) -> Iterator[Problem]:
    if not config.budget_usd:
        yield from unused(config, ["budget_emails"], "without a budget (budget_usd = 0)", "set budget_usd")
    yield from _repeated_addresses("budget_emails", config.budget_emails)
    if config.budget_usd and not config.budget_emails and not config.budget_stops_workers:
        yield Problem(
            key="budget_usd",
            value=config.budget_usd,
            rule="has no effect: there are no addresses to notify, and workers are not stopped",
            remedy="set budget_emails, or budget_stops_workers = true",
        )


def _protection(config: ClusterConfig) -> Iterator[Problem]:
    """Reject termination protection of spot instances, because EC2 rejects it (EC2 User Guide)."""
    if config.protect_instances and config.spot:
        yield Problem(
            key="protect_instances",
            value=True,
            rule="EC2 cannot protect spot instances from termination, and spot = true",
            remedy="set protect_instances = false, or spot = false",
        )


def _alarms(config: ClusterConfig) -> Iterator[Problem]:
    if not config.alarms:
        keys = ("alarm_emails", "alarm_topic")
        yield from unused(config, keys, "without alarms (alarms = false)", "set alarms = true")
    yield from _repeated_addresses("alarm_emails", config.alarm_emails)


def _repeated_addresses(key: str, addresses: tuple[str, ...]) -> Iterator[Problem]:
    repeated = sorted({address for address in addresses if addresses.count(address) > 1})
    if repeated:
        yield Problem(
            key=key,
            value=addresses,
            rule=f"lists {', '.join(repeated)} more than once",
            remedy="list each address once",
        )
