"""cdk-preflight refuses these at synth, so that nothing of ours says it again."""

from __future__ import annotations

import pytest

from tests.refusals.case import Case, Template
from tests.refusals.rule_pack import network, nodes, services
from tests.refusals.rule_pack.engine import findings

CASES = (*network.CASES, *nodes.CASES, *services.CASES)

Findings = list[list[str]]


@pytest.fixture(scope="module")
def found() -> Findings:
    """Return what is found in each violation and its sound counterpart, in one synthesis: 16 s for 120 templates."""
    return findings([template for case in CASES for template in (case.violation, case.sound)])


@pytest.mark.parametrize(("number", "case"), list(enumerate(CASES)), ids=map(str, CASES))
def test_the_violation_is_refused(number: int, case: Case[Template], found: Findings) -> None:
    assert case.said in found[2 * number]


@pytest.mark.parametrize(("number", "case"), list(enumerate(CASES)), ids=map(str, CASES))
def test_its_sound_counterpart_is_taken(number: int, case: Case[Template], found: Findings) -> None:
    assert found[2 * number + 1] == []
