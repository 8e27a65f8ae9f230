"""Alarm definitions, read from moto's alarms. moto stores any alarm and evaluates none.

An alarm is read when it is put. An unsupported feature is rejected by name.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any, Final

from moto.cloudwatch.exceptions import ValidationError
from moto.cloudwatch.models import CloudWatchBackend

from localcloud.api.cloudwatch import states
from localcloud.api.cloudwatch.expressions import Expression, ExpressionError, names, parse
from localcloud.api.cloudwatch.metrics import STATISTICS, Key
from localcloud.api.monkeypatch import around

HOUR_S: Final = 3600
DAY_S: Final = 86400
MAX_WINDOW_S: Final = 7 * DAY_S
_ACTION: Final = re.compile(r"arn:[\w-]+:(autoscaling:[\w-]+:\d+:scalingPolicy:.+|sns:[\w-]+:\d+:.+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """An input of an alarm: a metric (`key`) with a statistic, or an expression that refers to other sources by id."""

    id: str
    key: Key | None = None
    statistic: str = ""
    expression: Expression | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlarmDefinition:
    """The values that an alarm compares, and the rule for its state."""

    rule: states.Rule
    period_s: int
    sources: tuple[Source, ...]
    """Sorted so that each source comes after the sources that it needs."""
    shown: str
    """Id of the source whose value is compared."""

    @property
    def is_multi_day(self) -> bool:
        """Return whether the alarm covers more than a day. It is then evaluated with data up to the full hour."""
        return self.period_s * self.rule.periods > DAY_S


def read(alarm: Any) -> AlarmDefinition:
    """Return the definition of one of moto's alarms.

    Raises ValidationError for an unsupported feature, an invalid expression, or an alarm that covers more than a day
    (with periods of an hour or more: a week).
    """
    if alarm.rule:
        raise _refused("an AlarmRule (composite alarms)")
    if alarm.extended_statistic:
        raise _refused(f"the statistic {alarm.extended_statistic}")
    if alarm.threshold_metric_id or alarm.comparison_operator not in states.COMPARISONS:
        raise _refused(f"the comparison {alarm.comparison_operator}")
    for action in (*alarm.alarm_actions, *alarm.ok_actions, *alarm.insufficient_data_actions):
        if not _ACTION.fullmatch(action):
            raise ValidationError(f"Unsupported alarm action {action}: must be a scaling policy or an SNS topic.")
    missing = alarm.treat_missing_data or "missing"
    if missing not in states.MISSING:
        raise ValidationError(f"TreatMissingData {missing}: must be one of {', '.join(states.MISSING)}")
    periods = int(alarm.evaluation_periods)
    rule = states.Rule(
        comparison=alarm.comparison_operator,
        threshold=float(alarm.threshold),
        periods=periods,
        to_alarm=int(alarm.datapoints_to_alarm or periods),
        missing=missing,
    )
    sources, period_s, shown = _sources(alarm)
    longest = MAX_WINDOW_S if period_s >= HOUR_S else DAY_S
    if period_s * periods > longest:
        raise ValidationError(
            f"EvaluationPeriods {periods} of {period_s} s: Metrics cannot be checked across more than "
            f"{'a week' if longest == MAX_WINDOW_S else 'a day'} (EvaluationPeriods * Period must be <= {longest})."
        )
    return AlarmDefinition(rule=rule, period_s=period_s, sources=sources, shown=shown)


def _refused(what: str) -> ValidationError:
    """Return the error for alarms with the unsupported feature `what`."""
    return ValidationError(f"The embedded cloud does not support alarms with {what}.")


def _sources(alarm: Any) -> tuple[tuple[Source, ...], int, str]:
    """Return the sources in dependency order, their common period (s), and the id of the compared source.

    Raises ValidationError, for example if the metrics have different periods, or unless exactly one source is compared.
    """
    if not alarm.metric_data_queries:
        source = _metric("m", alarm.namespace, alarm.metric_name, alarm.dimensions, alarm.statistic)
        return (source,), int(alarm.period), "m"
    found: dict[str, Source] = {}
    periods, shown = set(), []
    for query in alarm.metric_data_queries:
        if query.return_data in (True, "true", None):
            shown.append(query.id)
        if query.metric_stat is not None:
            stat = query.metric_stat
            metric = stat.metric
            found[query.id] = _metric(query.id, metric.namespace, metric.metric_name, metric.dimensions, stat.stat)
            periods.add(int(stat.period))
        else:
            found[query.id] = Source(id=query.id, expression=_parsed(query.expression))
    if len(shown) != 1:
        raise ValidationError("Exactly one element of the metrics list should return data.")
    if len(periods) != 1:
        raise _refused("metrics with different periods")
    return tuple(_ordered(found)), periods.pop(), shown[0]


def _metric(id: str, namespace: str, name: str, dimensions: Any, statistic: str) -> Source:
    """Return the source for a metric. Raises ValidationError for an unsupported statistic."""
    if statistic not in STATISTICS:
        raise _refused(f"the statistic {statistic}")
    return Source(id=id, key=(namespace, name, frozenset((d.name, d.value) for d in dimensions)), statistic=statistic)


def _parsed(expression: str | None) -> Expression:
    try:
        return parse(expression or "")
    except ExpressionError as error:
        raise ValidationError(str(error)) from None


def _ordered(sources: dict[str, Source]) -> Iterator[Source]:
    """Yield each source after the sources that its expression needs.

    Raises ValidationError if an expression uses an unknown id, or if expressions form a cycle.
    """
    done: set[str] = set()
    while len(done) < len(sources):
        ready = [
            source
            for id, source in sources.items()
            if id not in done and (source.expression is None or names(source.expression) <= done)
        ]
        if not ready:
            raise _undefined(sources, done)
        for source in ready:
            done.add(source.id)
            yield source


def _undefined(sources: dict[str, Source], done: set[str]) -> ValidationError:
    """Return the error for an expression with an unknown id, or else for the first in a cycle of expressions.

    `done`: ids of the sources that can be computed.
    """
    wanted = {id: names(each.expression) - done for id, each in sources.items() if id not in done and each.expression}
    id = next((id for id, missing in wanted.items() if missing - sources.keys()), next(iter(wanted)))
    missing = sorted(wanted[id] - sources.keys()) or sorted(wanted[id])
    return ValidationError(f"Error in expression '{id}': Undefined variable {missing[0]}")


@around(CloudWatchBackend, "put_metric_alarm")
def _put_metric_alarm(original: Any, self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Store an alarm. A new alarm has the state INSUFFICIENT_DATA; a changed alarm keeps its state.

    Raises ValidationError for an unsupported alarm, or for an action in another region. The previous alarm is then
    kept, if there is one.
    """
    before = self.alarms.get(name)
    for kind in ("alarm_actions", "ok_actions", "insufficient_data_actions"):
        for action in kwargs.get(kind) or ():
            other = str(action).split(":")[3:4]
            if other and other != [self.region_name]:
                raise ValidationError(f"Invalid region {other[0]} specified. Only {self.region_name} is supported.")
    alarm = original(self, name, *args, **kwargs)
    try:
        read(alarm)
    except ValidationError:
        self.alarms.pop(name)
        if before is not None:
            self.alarms[name] = before
        raise
    alarm.state_value = states.INSUFFICIENT
    if before is not None:
        for field in ("state_value", "state_reason", "state_reason_data", "state_updated_timestamp", "history"):
            setattr(alarm, field, getattr(before, field))
    return alarm
