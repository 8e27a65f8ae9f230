"""Rules of logs, metrics and alarms."""

from __future__ import annotations

from collections.abc import Iterator

from stacks.config import ClusterConfig
from stacks.validation.problem import Problem, repeated_addresses


def check(config: ClusterConfig) -> Iterator[Problem]:
    """Yield every rule of logs, metrics and alarms that the configuration breaks."""
    for key in ("alarm_emails", "alarm_topic"):
        if getattr(config, key) and not config.alarms:
            yield Problem(
                key=key,
                value=getattr(config, key),
                rule="says who is notified of alarms, but alarms is false, so there are none",
                remedy="set alarms = true, or leave it out",
            )
    yield from repeated_addresses("alarm_emails", config.alarm_emails)
