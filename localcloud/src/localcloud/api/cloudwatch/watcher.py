"""The evaluation of alarms: the compared values, the new state, and the alarm's actions."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from moto.core.utils import utcnow

from localcloud.api.cloudwatch import scaling, states
from localcloud.api.cloudwatch.alarms import HOUR_S, AlarmDefinition, read
from localcloud.api.cloudwatch.expressions import Series, evaluate
from localcloud.api.cloudwatch.metrics import Reader, epoch
from localcloud.snapshot import ACCOUNT, REGION

log = logging.getLogger("localcloud.api")


def points(definition: AlarmDefinition, reader: Reader, now: float, speed: float) -> Series:
    """Return the compared value in each period of the alarm's evaluation range, oldest first.

    `now` is in seconds since 1970. The last period ends at `now`, or for a multi-day alarm at the last full hour.
    Periods and hours are shorter by the factor `speed`.
    """
    period_s = definition.period_s / speed
    end = now - now % (HOUR_S / speed) if definition.is_multi_day else now
    found: dict[str, Series] = {}
    for source in definition.sources:
        if source.key is not None:
            found[source.id] = reader.series(
                source.key, source.statistic, period_s=period_s, periods=definition.rule.range, end=end
            )
        elif source.expression is not None:
            found[source.id] = evaluate(source.expression, found, definition.rule.range)
    return found[definition.shown]


class Watcher:
    """Evaluates the alarms of an account and region, and executes their actions, as CloudWatch does once a minute."""

    def __init__(self, backend: Callable[[str], Any], speed: float) -> None:
        self._backend, self._speed = backend, speed
        self._changed = False

    def evaluate(self) -> bool:
        """Evaluate all alarms once, and execute their actions; return whether an Auto Scaling group's size changed.

        Notifications are only sent when an alarm's state changes. A scaling policy of the present state is executed at
        each evaluation.
        """
        self._changed = False
        backend = self._backend("cloudwatch")
        alarms = list(backend.alarms.values())
        reader = Reader(backend.metric_data if alarms else [])
        now = epoch(utcnow())
        for alarm in alarms:
            definition = read(alarm)
            self._settle(alarm, definition, points(definition, reader, now, self._speed))
        return self._changed

    def _settle(self, alarm: Any, definition: AlarmDefinition, values: Series) -> None:
        """Update an alarm's state from the compared values, and run its actions unless they are disabled.

        Scaling policies run at each call, other actions only if the state has changed.
        """
        state = states.decide(definition.rule, values, alarm.state_value)
        is_new = state != alarm.state_value
        latest = next((value for value in reversed(values) if value is not None), None)
        if is_new:
            reason = _reason(definition, values, state)
            log.info("alarm %s: %s -> %s: %s", alarm.name, alarm.state_value, state, reason)
            alarm.update_state(reason, json.dumps({"version": "1.0", "recentDatapoints": values[-10:]}), state)
        if not alarm.actions_enabled:
            return
        actions = {states.ALARM: alarm.alarm_actions, states.OK: alarm.ok_actions}.get(
            state, alarm.insufficient_data_actions
        )
        for action in actions:
            if is_new or ":scalingPolicy:" in action:
                self._act(action, alarm, latest)

    def _act(self, action: str, alarm: Any, value: float | None) -> None:
        """Execute an alarm's scaling policy, or publish its notification to a topic. Failures are only logged."""
        if ":scalingPolicy:" in action:
            self._scale(action, alarm, value)
            return
        try:
            text = notification(alarm)
            self._backend("sns").publish(text, action, subject=f'{alarm.state_value}: "{alarm.name}"'[:100])
        except Exception as error:  # CloudWatch does not report failed actions either.
            log.warning("alarm %s could not notify %s: %s", alarm.name, action, error)

    def _scale(self, action: str, alarm: Any, value: float | None) -> None:
        policy = scaling.find(self._backend("autoscaling"), action)
        if policy is None or value is None:
            why = "the policy does not exist" if policy is None else "the alarm has no data"
            log.warning("alarm %s cannot execute scaling policy %s: %s", alarm.name, action, why)
            return
        cause = (
            f"At {utcnow():%Y-%m-%dT%H:%M:%SZ} a monitor alarm {alarm.name} in state {alarm.state_value} "
            f"triggered policy {policy.name}"
        )
        self._changed |= scaling.execute(policy, value - float(alarm.threshold), cause)


def _reason(definition: AlarmDefinition, values: Series, state: str) -> str:
    """Return the text of the reason for an alarm's new state."""
    rule = definition.rule
    recent = [f"{value:g}" if value is not None else "-" for value in values[-rule.periods :]][-5:]
    outcome = {states.ALARM: "beyond", states.OK: "not all beyond"}.get(state, "too few to compare with")
    return (
        f"Threshold Crossed: {rule.to_alarm} of the last {rule.periods} datapoints are needed; the latest, "
        f"[{', '.join(recent)}], are {outcome} the threshold ({rule.comparison} {rule.threshold:g})."
    )


def notification(alarm: Any) -> str:
    """Return CloudWatch's message to a topic about an alarm's present state, as JSON. Nothing is sent."""
    return json.dumps(
        {
            "AlarmName": alarm.name,
            "AlarmDescription": alarm.description,
            "AWSAccountId": ACCOUNT,
            "Region": REGION,
            "NewStateValue": alarm.state_value,
            "NewStateReason": alarm.state_reason,
            "StateChangeTime": f"{utcnow():%Y-%m-%dT%H:%M:%S.000+0000}",
            "AlarmArn": alarm.alarm_arn,
        }
    )
