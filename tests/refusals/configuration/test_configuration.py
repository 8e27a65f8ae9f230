"""A configuration from which AWS would refuse what is made is refused here, with the key named."""

from __future__ import annotations

import pytest

from stacks.config import ClusterConfig, ConfigError
from stacks.validation import check
from tests.refusals.case import Case, Values
from tests.refusals.configuration.cases import CASES
from tests.refusals.templates import REGION


def wrong_keys(values: Values) -> list[str]:
    """Return the keys that are refused in a region: the first wrong by itself, or all that do not go together."""
    try:
        return [problem.key for problem in check(ClusterConfig.from_context({"cluster": values}), REGION)]
    except ConfigError as error:
        return [error.key]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_violation_is_refused(case: Case[Values]) -> None:
    assert wrong_keys(case.violation) == [case.said]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_its_sound_counterpart_is_taken(case: Case[Values]) -> None:
    assert wrong_keys(case.sound) == []
