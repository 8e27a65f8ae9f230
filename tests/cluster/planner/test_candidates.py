"""Candidates: their range, their cost, and the choice between them."""

from __future__ import annotations

import dataclasses

import pytest

from cluster.planner.assumptions import assume
from cluster.planner.candidates import (
    Candidate,
    HourlyPrices,
    choose,
    evaluate,
    mark_frontier,
    seconds_in_range,
)
from cluster.planner.figure import Range, exact
from cluster.planner.hardware import hardware_of
from cluster.planner.run_time import Cluster, Parts
from tests.cluster.planner.fast_ai_2018 import DAWNBENCH

RUN, P3 = DAWNBENCH[1].workload, hardware_of("p3.16xlarge")
ASSUMED = assume(RUN, P3)


def candidate(nodes: int, hours: float, usd: float | None) -> Candidate:
    """Return a candidate with this time and cost, each within a fifth."""
    seconds = Range(low=0.8, value=1, high=1.2).times(hours * 3600)
    cost = None if usd is None else Range(low=0.8, value=1, high=1.2).times(usd)
    return Candidate(instance_type="x", nodes=nodes, seconds=seconds, parts=Parts(compute=1), usd=cost, spot_usd=None)


ONE, TWO, FOUR, EIGHT = candidate(1, 4, 10), candidate(2, 2.5, 12), candidate(4, 3, 20), candidate(8, 1, 30)
EVERY = (ONE, TWO, FOUR, EIGHT)


def test_range_has_ends_of_each_value_but_not_all_at_once() -> None:
    cluster = Cluster(hardware=P3, nodes=4)
    whole, parts = seconds_in_range(RUN, cluster, ASSUMED)
    slow = ASSUMED.at("images_s", ASSUMED.images_s.low)
    alone = seconds_in_range(RUN, cluster, slow)[1].total
    assert whole.low < parts.total < alone < whole.high
    for name in ("between_bytes_s", "decode_images_s"):
        slow = slow.at(name, slow.figure(name).low)
    assert whole.high - ASSUMED.start_up_s.high < seconds_in_range(RUN, cluster, slow)[1].total


def test_every_type_and_number_is_evaluated_at_its_price() -> None:
    assumed = dataclasses.replace(ASSUMED, start_up_s=exact(0, "cited", "a test"))
    prices = {"p3.16xlarge": HourlyPrices(node=24.48, spot_node=10, rest=1.0)}
    found = evaluate(lambda _: RUN, lambda *_: assumed, [P3], [2, 4], prices)
    assert [each.nodes for each in found] == [2, 4]
    for each in found:
        assert each.usd is not None
        assert each.spot_usd is not None
        assert each.usd.value == pytest.approx(each.seconds.value / 3600 * (each.nodes * 24.48 + 1))
        assert each.spot_usd.value == pytest.approx(each.seconds.value / 3600 * (each.nodes * 10 + 1))


def test_unknown_price_is_an_unknown_cost_and_never_zero() -> None:
    found = evaluate(lambda _: RUN, lambda *_: ASSUMED, [P3], [2], {"p3.16xlarge": HourlyPrices(node=None, rest=1.0)})
    assert (found[0].usd, found[0].spot_usd, found[0].on_frontier) == (None, None, False)
    assert choose(found).reason == "it is the fastest; no price is known"


def test_frontier_has_candidates_not_beaten_in_both_time_and_cost() -> None:
    marked = mark_frontier([*EVERY, candidate(16, 1, 31), candidate(32, 0.5, None)])
    assert [each.nodes for each in marked if each.on_frontier] == [1, 2, 8]


def test_without_limits_the_product_of_time_and_cost_decides() -> None:
    assert choose(EVERY).candidate in (TWO, EIGHT)
    assert choose((ONE, TWO, FOUR)).candidate == TWO


def test_cheapest_candidate_within_the_deadline_is_chosen_and_risk_is_noted() -> None:
    chosen = choose(EVERY, deadline_s=3.1 * 3600)
    assert (chosen.candidate, chosen.reason) == (TWO, "it is the cheapest that meets the deadline")
    assert "the slow end of its range misses the deadline" in choose(EVERY, deadline_s=2.6 * 3600).reason


def test_budget_chooses_the_fastest_and_both_limits_apply() -> None:
    assert choose(EVERY, budget_usd=15).candidate == TWO
    assert choose(EVERY, budget_usd=100).candidate == EIGHT
    assert choose(EVERY, budget_usd=15, deadline_s=3600).candidate is None


def test_impossible_limits_are_answered_with_nearest_candidate() -> None:
    assert choose(EVERY, deadline_s=60).reason == "no candidate meets the limits; the fastest is 8 x x with 1.00 h"
    assert choose(EVERY, budget_usd=1).reason == "no candidate meets the limits; the cheapest is 1 x x with $10.00"
    both = "no candidate meets the limits; the fastest is 8 x x with 1.00 h, the cheapest is 1 x x with $10.00"
    assert choose(EVERY, deadline_s=3600, budget_usd=15).reason == both
    assert choose([candidate(1, 1, None)], budget_usd=1).reason == "no candidate meets the limits; no price is known"


def test_with_a_deadline_and_no_prices_the_fewest_nodes_are_chosen() -> None:
    chosen = choose([candidate(4, 1, None), candidate(2, 1.5, None)], deadline_s=2 * 3600)
    assert chosen.candidate is not None
    assert chosen.candidate.nodes == 2
