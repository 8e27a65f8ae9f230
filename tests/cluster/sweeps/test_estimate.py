"""The estimate of a sweep: sums over its runs, on the available workers."""

from __future__ import annotations

import pytest

from agent.spec.run_limits import RunLimits
from cluster.planner.figure import Range
from cluster.planner.run_estimate import RunEstimate
from cluster.planner.run_time import Parts
from cluster.sweeps.estimate import chosen_combinations, estimated
from cluster.sweeps.plan import Plan
from tests.cluster.sweeps.test_plan import plan


def one(seconds: float, usd: float | None = 1.0) -> RunEstimate:
    parts = Parts(compute=seconds)
    price = None if usd is None else Range(low=usd, value=usd, high=usd)
    spread = Range(low=seconds / 2, value=seconds, high=2 * seconds)
    return RunEstimate(
        seconds=spread, usd=price, bottleneck="", epochs=1, parts=parts, images_per_s=1, rate_source="x: y"
    )


def test_time_is_shared_by_the_workers_and_the_price_is_the_sum() -> None:
    found = plan("x=a,b", repeats=3)
    (a, b) = found.combinations()
    estimate = estimated(found, found.trials(), 3, {a: one(60), b: one(120, 2.0)})
    assert estimate.seconds == Range(low=90, value=180, high=360)
    assert estimate.usd is not None and estimate.usd.value == 9.0
    text = estimate.describe(RunLimits(), None)
    assert text == "6 runs, 3 at a time: about 3:00 (1:30 to 6:00), $9.00 for their workers"
    assert estimate.of(found.trials()[1])["seconds"]["value"] == 120


def test_sweep_takes_at_least_as_long_as_its_longest_run() -> None:
    found = plan("x=a,b")
    (a, b) = found.combinations()
    estimate = estimated(found, found.trials(), 16, {a: one(10), b: one(100)})
    assert estimate.seconds is not None and estimate.seconds.value == pytest.approx(100)
    assert estimate.at_once == 2


def test_unknown_time_is_described_by_the_price_of_an_hour_and_the_limit_of_a_run() -> None:
    found = plan("x=1..10", nodes="2")
    estimate = estimated(found, found.trials(), 4, {})
    assert estimate.describe(RunLimits(), 1.36) == (
        "10 runs, 2 at a time: time unknown, $1.36 per hour for the workers; --max-hours limits the time of each run"
    )
    bounded = estimate.describe(RunLimits(max_hours=0.5), 1.36)
    assert bounded == "10 runs, 2 at a time: at most 2:30:00, $3.40 for the workers (--max-hours 0.5 for each run)"
    assert "price unknown" in estimate.describe(RunLimits(), None)
    assert estimated(found, found.trials(), 4, {found.combinations()[0]: one(1, None)}).usd is None


def test_some_of_many_combinations_stand_for_all() -> None:
    found: Plan = plan("a=1..100", "b=1..100")
    chosen = chosen_combinations(found.trials())
    assert len(chosen) == 100
    estimate = estimated(found, found.trials(), 10, {trial.parameters: one(6) for trial in chosen})
    assert estimate.seconds is not None and estimate.seconds.value == pytest.approx(10_000 * 6 / 10)
