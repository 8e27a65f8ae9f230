"""The limits of a run: the nearer limit applies, and is shown with the amount spent."""

from __future__ import annotations

import math

import pytest

from agent.errors import SpecError
from agent.spec.run_limits import RunLimits, dollars, hours

BOTH = RunLimits(max_hours=2.0, max_usd=5.0)


@pytest.mark.parametrize("value", [-1.0, math.nan, "5", True])
def test_limit_is_a_number_of_0_or_more(value: object) -> None:
    with pytest.raises(SpecError, match=r"bounds: max_usd = .*: must be a finite number of 0 or more"):
        RunLimits(max_usd=value)  # type: ignore[arg-type]  # as JSON may have it


def test_run_without_limits_never_reaches_one() -> None:
    assert not RunLimits()
    assert RunLimits().share(1e9, 1e9) == 0
    assert RunLimits().left_s(1e9, 1e9, 100.0) == math.inf


def test_nearer_of_two_limits_counts() -> None:
    assert BOTH.share(3600, 1.0) == 0.5
    assert BOTH.share(3600, 4.0) == 0.8
    assert BOTH.left_s(3600, 1.0, 1.0) == 3600, "an hour is left, and four dollars are four hours"
    assert BOTH.left_s(3600, 4.0, 2.0) == 1800
    assert BOTH.left_s(9000, 1.0, 1.0) == 0
    assert (BOTH.share(3600, None), BOTH.left_s(3600, None, None)) == (0.5, 3600), "no price is known"


def test_nearer_limit_is_described_with_its_flag() -> None:
    assert BOTH.describe(3600, 4.0) == "--max-cost 5: $4 of $5 after 1 h"
    assert BOTH.describe(5400, 1.25) == "--max-hours 2: 1.5 h of 2 h, $1.25"
    assert BOTH.describe(5400, None) == "--max-hours 2: 1.5 h of 2 h"


def test_small_amounts_keep_significant_digits() -> None:
    assert [dollars(usd) for usd in (0, 0.0123, 0.5, 12)] == ["$0", "$0.0123", "$0.50", "$12"]
    assert [hours(seconds) for seconds in (0, 36, 3600, 4500)] == ["0 h", "0.01 h", "1 h", "1.25 h"]
