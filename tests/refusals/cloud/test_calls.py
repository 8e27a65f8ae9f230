"""The embedded cloud refuses the calls that AWS refuses, with AWS's code."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from tests.refusals.case import Calls, Case, Client
from tests.refusals.cloud.call_cases import CASES


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_violation_is_refused(case: Case[Calls], client: Client) -> None:
    with pytest.raises(ClientError) as refusal:
        case.violation(client)
    assert case.said in str(refusal.value)
    assert "InternalFailure" not in str(refusal.value)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_its_sound_counterpart_is_taken(case: Case[Calls], client: Client) -> None:
    case.sound(client)  # raises where it is refused
