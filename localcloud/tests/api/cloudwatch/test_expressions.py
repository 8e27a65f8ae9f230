"""Metric math has CloudWatch's results, and unsupported expressions are rejected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localcloud.api.cloudwatch.expressions import ExpressionError, Series, evaluate, parse

_SERIES = st.lists(st.none() | st.floats(-1e6, 1e6, allow_nan=False), min_size=1, max_size=8)


def value(expression: str, **series: Series) -> Series:
    length = max((len(each) for each in series.values()), default=1)
    return evaluate(parse(expression), series, length)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("2 - 1 - 1", 0),
        ("2 ^ 3 / 4", 2),
        ("-2 + 5", 3),
        ("1 < 2 AND 2 < 1", 0),
        ("1 < 2 || 2 < 1", 1),
        ("1 + 1 == 2", 1),
        ("IF(2 >= 2, 10, 20)", 10),
        ("CEIL(1.2) + FLOOR(1.8) + ABS(-3)", 6),
    ],
)
def test_operators_bind_as_in_arithmetic(expression: str, expected: float) -> None:
    assert value(expression) == [expected]


def test_series_are_computed_by_period_and_common_gaps_remain() -> None:
    """Source: "Using math expressions with CloudWatch metrics" in the CloudWatch user guide."""
    assert value("a + 1", a=[1, None]) == [2, None]
    assert value("a + b", a=[1, None, 3, None], b=[10, 20, None, None]) == [11, 20, 3, None]
    assert value("a < b", a=[30, 20, 0, 0], b=[20, None, 20, None]) == [0, 0, 1, 0]
    assert value("a > 15 AND b > 15", a=[30, 20, 0, 0], b=[20, None, 20, None]) == [1, 0, 0, 0]
    assert value("IF(a > 1, b, 0)", a=[1, 2, None], b=[7, 8, 9]) == [0, 8, None]
    chosen = value("IF(a, b, c)", a=[1, 1, 0, 0, None], b=[30, None, 0, 0, 30], c=[0, 0, 20, None, 20])
    assert chosen == [30, 0, 20, None, None]
    assert value("IF(a > 1, b)", a=[1, 2], b=[7, 8]) == [None, 8]
    assert value("a / b", a=[1, 1], b=[0, 2]) == [None, 0.5]


def test_fill_closes_gaps_but_repeat_not_before_first_value() -> None:
    assert value("FILL(a, 0)", a=[None, 1, None]) == [0, 1, 0]
    assert value("FILL(a, REPEAT)", a=[None, 1, None, 2, None]) == [None, 1, 1, 2, 2]


def test_function_over_one_series_is_one_number_for_all_periods() -> None:
    assert value("MAX(a)", a=[1, None, 3]) == [3, 3, 3]
    assert value("AVG(a) + a", a=[1, None, 3]) == [3, None, 5]
    assert value("SUM(a)", a=[None, None]) == [None, None]


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("SEARCH('x', 'Sum', 300)", "does not support \"'x', 'Sum', 300)\""),
        ("ANOMALY_DETECTION_BAND(m1)", "does not support the function ANOMALY_DETECTION_BAND, only IF"),
        ("1 +", "the expression is incomplete"),
        ("(1", "the expression is incomplete"),
        ("1 2", "unexpected '2'"),
        ("IF(1)", "IF takes 2 or 3 operands"),
        ("FILL(m1, LINEAR)", "only supports FILL with a number or REPEAT"),
        ("m1 + ;", "does not support ';'"),
        ("", "the expression is incomplete"),
    ],
)
def test_unsupported_expressions_are_rejected_with_reason(expression: str, reason: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(expression)
    assert caught.value.expression == expression
    assert reason in str(caught.value)


IDLE = "IF(FILL(size, REPEAT) > 0, IF(FILL(cpu, REPEAT) >= 6.25 OR FILL(sent, REPEAT) > 100, 0, 1), 0)"
"""The expression of a group's idle alarm."""


@given(cpu=_SERIES, sent=_SERIES)
def test_empty_group_is_never_idle(cpu: Series, sent: Series) -> None:
    length = max(len(cpu), len(sent))
    filled = [[*each, *[None] * (length - len(each))] for each in (cpu, sent)]
    assert set(value(IDLE, size=[0] * length, cpu=filled[0], sent=filled[1])) == {0}


def test_group_is_idle_only_with_known_low_values() -> None:
    assert value(IDLE, size=[1] * 4, cpu=[None, 1, 6.25, 1], sent=[None, 1, 1, 101]) == [0, 1, 0, 0]
    assert value("IF(FILL(size, REPEAT) > 0, 1, 0)", size=[None, 2, None, 0]) == [None, 1, 1, 0]


@given(_SERIES)
def test_repeat_keeps_every_value_and_leaves_no_gap_after_the_first(series: Series) -> None:
    filled = value("FILL(a, REPEAT)", a=series)
    assert all(now == before for now, before in zip(filled, series, strict=True) if before is not None)
    first = next((index for index, each in enumerate(series) if each is not None), len(series))
    assert None not in filled[first:]
    assert set(filled[:first]) <= {None}
