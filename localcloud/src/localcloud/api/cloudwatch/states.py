"""An alarm's state, decided from the data of its evaluation range as the CloudWatch user guide describes it."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Final

OK: Final = "OK"
ALARM: Final = "ALARM"
INSUFFICIENT: Final = "INSUFFICIENT_DATA"

SPARE_PERIODS: Final = 2
"""Periods that are looked at beyond those that count, so that a late or lost value does not decide.

CloudWatch does not say how many it takes; the examples of its guide take two for three."""

COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "GreaterThanThreshold": operator.gt,
    "GreaterThanOrEqualToThreshold": operator.ge,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}
MISSING: Final = ("missing", "ignore", "breaching", "notBreaching")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """When an alarm is in the state ALARM."""

    comparison: str
    threshold: float
    periods: int
    """The last periods that count (EvaluationPeriods)."""
    to_alarm: int
    """How many of them must be beyond the threshold (DatapointsToAlarm)."""
    missing: str = "missing"
    """What a period without data counts as (TreatMissingData)."""

    @property
    def range(self) -> int:
        """Return how many periods are looked at."""
        return self.periods + SPARE_PERIODS

    def breaches(self, value: float) -> bool:
        """Return whether a value is beyond the threshold."""
        return COMPARISONS[self.comparison](value, self.threshold)


def decide(rule: Rule, points: Sequence[float | None], current: str) -> str:
    """Return the state for the last `rule.range` periods, oldest first; None where a period has no data.

    Where there are data enough, the newest count and gaps between them do not matter.
    """
    real = [rule.breaches(value) for value in points if value is not None][-rule.periods :]
    breaching, fine = sum(real), len(real) - sum(real)
    absent = rule.periods - len(real)
    if absent == 0:
        return ALARM if breaching >= rule.to_alarm else OK
    if rule.missing == "breaching":
        return ALARM if breaching + absent >= rule.to_alarm else OK
    if rule.missing == "notBreaching":
        return ALARM if breaching >= rule.to_alarm else OK
    if breaching >= rule.to_alarm:
        return ALARM
    if fine > rule.periods - rule.to_alarm:
        return OK  # whatever the missing ones would have been
    if rule.missing == "ignore":
        return current
    return _without_enough(rule, points, fine)


def _without_enough(rule: Rule, points: Sequence[float | None], fine: int) -> str:
    """Decide for an alarm that counts missing data as missing, from too few data."""
    ages = [age for age, value in enumerate(reversed(points), start=1) if value is not None]
    if not ages:
        return INSUFFICIENT
    # "The oldest available breaching data point is at least as old as DatapointsToAlarm, and all more recent ones are
    # breaching or missing": then CloudWatch does not wait for more.
    return ALARM if fine == 0 and max(ages) >= rule.to_alarm else (OK if fine else INSUFFICIENT)
