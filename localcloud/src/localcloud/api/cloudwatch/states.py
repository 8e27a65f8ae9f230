"""An alarm's state, computed from the data of its evaluation range as described in the CloudWatch user guide."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Final

OK: Final = "OK"
ALARM: Final = "ALARM"
INSUFFICIENT: Final = "INSUFFICIENT_DATA"

SPARE_PERIODS: Final = 2
"""Additional older periods, so that a late or lost value does not change the state.

CloudWatch does not document their number. The examples of its guide use two for three periods.
"""

COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "GreaterThanThreshold": operator.gt,
    "GreaterThanOrEqualToThreshold": operator.ge,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}
MISSING: Final = ("missing", "ignore", "breaching", "notBreaching")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """The conditions for an alarm's state ALARM."""

    comparison: str
    threshold: float
    periods: int
    """Number of latest periods to evaluate (EvaluationPeriods)."""
    to_alarm: int
    """Number of periods that must be beyond the threshold (DatapointsToAlarm)."""
    missing: str = "missing"
    """Treatment of periods without data (TreatMissingData)."""

    @property
    def range(self) -> int:
        """Return the number of periods to read: the evaluated ones and the additional older ones."""
        return self.periods + SPARE_PERIODS

    def breaches(self, value: float) -> bool:
        """Return whether a value counts towards the state ALARM."""
        return COMPARISONS[self.comparison](value, self.threshold)


def decide(rule: Rule, points: Sequence[float | None], current: str) -> str:
    """Return an alarm's new state: OK, ALARM or INSUFFICIENT_DATA. `current` is its present state.

    `points` are the values of the last `rule.range` periods, oldest first; None marks a period without data. Only the
    newest `rule.periods` values count, so a few gaps do not matter. With fewer values, `rule.missing` decides
    how missing ones count.
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
        return OK  # for any values of the missing periods
    if rule.missing == "ignore":
        return current
    return _without_enough(rule, points, fine)


def _without_enough(rule: Rule, points: Sequence[float | None], fine: int) -> str:
    """Return the state if there are too few values and missing data are treated as missing.

    It is OK if `fine`, the number of values within the threshold, is not 0. Otherwise it is ALARM if the oldest value
    is at least `rule.to_alarm` periods old, or else INSUFFICIENT_DATA.
    """
    ages = [age for age, value in enumerate(reversed(points), start=1) if value is not None]
    if not ages:
        return INSUFFICIENT
    # "The oldest available breaching data point is at least as old as DatapointsToAlarm, and all more recent ones are
    # breaching or missing": in this case, CloudWatch does not wait for more data.
    return ALARM if fine == 0 and max(ages) >= rule.to_alarm else (OK if fine else INSUFFICIENT)
