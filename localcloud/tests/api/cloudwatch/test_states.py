"""An alarm's state follows the CloudWatch user guide for present, late and missing data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localcloud.api.cloudwatch.states import ALARM, INSUFFICIENT, OK, Rule, decide

KEPT = "the state before"


def rule(missing: str = "missing", periods: int = 3, to_alarm: int = 3) -> Rule:
    return Rule(comparison="GreaterThanThreshold", threshold=0.5, periods=periods, to_alarm=to_alarm, missing=missing)


def points(text: str) -> list[float | None]:
    """Parse periods: X is beyond the threshold, 0 is not, - has no data."""
    return [{"X": 1.0, "0": 0.0, "-": None}[each] for each in text]


# The guide's own table for 3 of 3, in the order missing, ignore, breaching, notBreaching.
@pytest.mark.parametrize(
    ("data", "states"),
    [
        ("0-X-X", (OK, OK, OK, OK)),
        ("----0", (OK, OK, OK, OK)),
        ("-----", (INSUFFICIENT, KEPT, ALARM, OK)),
        ("0XX-X", (ALARM, ALARM, ALARM, ALARM)),
        ("--X--", (ALARM, KEPT, ALARM, OK)),
    ],
)
def test_missing_data_are_treated_as_configured(data: str, states: tuple[str, ...]) -> None:
    treatments = ("missing", "ignore", "breaching", "notBreaching")
    assert tuple(decide(rule(each), points(data), KEPT) for each in treatments) == states


def test_some_of_several_periods_can_trigger_alarm() -> None:
    assert decide(rule(to_alarm=2), points("00X0X"), OK) == ALARM
    assert decide(rule(to_alarm=2), points("0X00X"), OK) == OK


def test_gaps_do_not_matter_with_enough_data() -> None:
    assert decide(rule("notBreaching"), points("XX--X"), OK) == ALARM
    assert decide(rule("notBreaching"), points("XX---"), ALARM) == OK


@given(st.text("X0", min_size=5, max_size=5), st.sampled_from(["missing", "ignore", "breaching", "notBreaching"]))
def test_complete_data_ignore_setting_for_missing_data(data: str, missing: str) -> None:
    assert decide(rule(missing), points(data), KEPT) == (ALARM if data.endswith("XXX") else OK)
