"""The embedded cloud refuses what AWS refuses when a stack is made, and removes all that it had made."""

from __future__ import annotations

import pytest

from tests.refusals.case import Case, Client, Template
from tests.refusals.cloud.creation import Creation, create
from tests.refusals.cloud.stack_cases import CASES


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_violation_is_refused_and_leaves_nothing(case: Case[Template], client: Client) -> None:
    made = create(client, case.violation)
    assert case.said in made.refused
    assert "InternalFailure" not in made.refused
    assert made.status in ("", "ROLLBACK_COMPLETE")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_its_sound_counterpart_is_taken(case: Case[Template], client: Client) -> None:
    assert create(client, case.sound) == Creation(status="CREATE_COMPLETE", refused="")
