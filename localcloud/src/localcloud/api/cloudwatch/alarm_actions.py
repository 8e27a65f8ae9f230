"""What a change of an alarm's state does: scaling policies are carried out, SNS topics notified."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from moto.core.utils import utcnow

from localcloud.api.cloudwatch import scaling
from localcloud.api.cloudwatch.evaluation import Evaluator

log = logging.getLogger("localcloud.api")


class Watcher:
    """Evaluate the alarms of an account and region, and carry their actions out."""

    def __init__(self, backend: Callable[[str], Any], *, account: str, region: str, speed: float) -> None:
        self._backend, self._account, self._region, self._speed = backend, account, region, speed
        self._changed = False

    def evaluate(self) -> bool:
        """Evaluate all alarms once; return whether the size of a group changed."""
        self._changed = False
        Evaluator(self._backend("cloudwatch"), self._act, self._speed).evaluate()
        return self._changed

    def _act(self, action: str, alarm: Any, value: float | None) -> None:
        if ":scalingPolicy:" in action:
            self._scale(action, alarm, value)
            return
        try:
            text = notification(alarm, self._account, self._region)
            self._backend("sns").publish(text, action, subject=f'{alarm.state_value}: "{alarm.name}"'[:100])
        except Exception as error:  # CloudWatch does not report failed actions either.
            log.warning("alarm %s could not notify %s: %s", alarm.name, action, error)

    def _scale(self, action: str, alarm: Any, value: float | None) -> None:
        policy = scaling.find(self._backend("autoscaling"), action)
        if policy is None or value is None:
            log.warning("alarm %s: no policy %s", alarm.name, action)
            return
        cause = (
            f"At {utcnow():%Y-%m-%dT%H:%M:%SZ} a monitor alarm {alarm.name} in state {alarm.state_value} "
            f"triggered policy {policy.name}"
        )
        self._changed |= scaling.execute(policy, value - float(alarm.threshold), cause)


def notification(alarm: Any, account: str, region: str) -> str:
    """Return what CloudWatch sends to a topic."""
    return json.dumps(
        {
            "AlarmName": alarm.name,
            "AlarmDescription": alarm.description,
            "AWSAccountId": account,
            "Region": region,
            "NewStateValue": alarm.state_value,
            "NewStateReason": alarm.state_reason,
            "StateChangeTime": f"{utcnow():%Y-%m-%dT%H:%M:%S.000+0000}",
            "AlarmArn": alarm.alarm_arn,
        }
    )
