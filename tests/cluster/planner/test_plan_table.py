"""The display of candidates."""

from __future__ import annotations

import dataclasses

from cluster.planner.assumptions import Assumptions, assume
from cluster.planner.candidates import Candidate, Choice, HourlyPrices, choose, evaluate
from cluster.planner.hardware import hardware_of
from cluster.planner.plan_table import WORDS, assumption_table, candidate_table, choice_sentence
from cluster.terminal.tables import plain_lines
from tests.cluster.planner.fast_ai_2018 import DAWNBENCH

RUN, P3 = DAWNBENCH[1].workload, hardware_of("p3.16xlarge")
ASSUMED = assume(RUN, P3)


def candidates(price: float | None = 24.48) -> list[Candidate]:
    """Return two candidates."""
    prices = {"p3.16xlarge": HourlyPrices(node=price)}
    return evaluate(lambda _: RUN, lambda *_: ASSUMED, [P3], [2, 4], prices)


def test_row_has_time_cost_and_bottleneck_with_their_ranges_and_the_choice_a_mark() -> None:
    found = candidates()
    found[0] = dataclasses.replace(found[0], on_frontier=False)
    choice = Choice(candidate=found[1], reason="it is")
    table = candidate_table(found, choice, title="a plan", footer=["below"])
    assert [row[0] for row in table.rows] == ["", "*"]
    assert table.rows[0][1:3] == ("2", "p3.16xlarge")
    assert "$" in table.rows[0][5]
    assert " to " in table.rows[0][4]
    assert table.rows[0][8].startswith("compute ")
    assert [row[9] for row in table.rows] == ["", "yes"]
    assert list(plain_lines(table))[-1] == "below"


def test_unknown_price_is_shown_as_unknown() -> None:
    row = candidate_table(candidates(None), Choice(candidate=None, reason=""), title="", footer=()).rows[0]
    assert (row[5], row[6], row[7]) == ("unknown", "", "unknown")


def test_choice_is_a_sentence_with_its_reason() -> None:
    found = candidates()
    said = choice_sentence(choose(found))
    assert said.startswith("4 x p3.16xlarge: ")
    assert said.endswith(", because it has the lowest product of time and cost")
    assert choice_sentence(Choice(candidate=None, reason="none fits")) == "none fits"


def test_assumptions_are_shown_with_source() -> None:
    table = assumption_table("p3.16xlarge", ASSUMED)
    assert all(row[3] in ("cited", "estimated", "measured") and row[4] for row in table.rows)
    assert set(WORDS) == {field.name for field in dataclasses.fields(Assumptions)}
