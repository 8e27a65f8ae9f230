"""Rules of logs, metrics and alarms."""

from __future__ import annotations

from collections.abc import Iterator

from stacks.config import ClusterConfig
from stacks.validation.problem import Problem


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
    repeated = sorted({each for each in config.alarm_emails if config.alarm_emails.count(each) > 1})
    if repeated:
        yield Problem(
            key="alarm_emails",
            value=config.alarm_emails,
            rule=f"names {', '.join(repeated)} more than once",
            remedy="name each address once",
        )
