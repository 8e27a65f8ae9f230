"""Each entry of the catalogue is refused in a test, or cannot be met for a stated reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.refusals.catalogue import ELSEWHERE, ENTRIES, NOT_MET
from tests.refusals.cloud import call_cases, stack_cases
from tests.refusals.configuration import cases as configuration_cases
from tests.refusals.rule_pack import test_rule_pack

ROOT = Path(__file__).parents[2]
IN_CASES = {
    case.entry
    for cases in (test_rule_pack.CASES, configuration_cases.CASES, stack_cases.CASES, call_cases.CASES)
    for case in cases
}


def test_each_entry_is_refused_or_cannot_be_met_and_says_which() -> None:
    said = Counter([*IN_CASES, *ELSEWHERE.keys() - IN_CASES, *NOT_MET])
    assert {entry for entry in ENTRIES if not said[entry]} == set(), "neither a case nor a reason"
    assert {entry for entry, count in said.items() if count > 1} == set(), "a case beside a reason why there is none"
    assert said.keys() - ENTRIES.keys() == set(), "not in the catalogue"


def test_the_tests_elsewhere_are_there() -> None:
    for test in ELSEWHERE.values():
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), test
