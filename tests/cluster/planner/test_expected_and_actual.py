"""Comparing a run's estimate with its actual values."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.planner.expected_and_actual import outcomes
from cluster.planner.run_estimate import RunEstimate, estimate_run
from payload.recipes.digits import DIGITS
from stacks.config import ClusterConfig
from tests.cluster.planner.test_past_runs import record


def with_estimate(**parts: Any) -> dict[str, Any]:
    found = estimate_run(
        lambda _: DIGITS.settings, "c5.2xlarge", 2, ClusterConfig(), nodes_are_up=True, usd_per_hour=0.34
    )
    assert isinstance(found, RunEstimate)
    return record(origin={"estimate": found.document()}, usd=0.02, **parts)


def test_parts_add_up_to_the_time_on_both_sides() -> None:
    found = {each.name: each for each in outcomes(with_estimate())}
    parts = [found[name] for name in ("start-up", "training steps", "evaluation")]
    assert sum(each.expected for each in parts) == pytest.approx(found["time"].expected, abs=0.01)
    assert sum(each.actual for each in parts) == pytest.approx(found["time"].actual)
    assert found["training steps"].actual == record()["result"]["training_seconds"]
    assert found["images/s"].actual == record()["result"]["images_per_s"]
    assert found["cost, expected for only the workers"].actual == 0.02


def test_value_is_shown_with_range_and_difference() -> None:
    estimate = {"seconds": {"low": 10, "value": 40, "high": 90}, "usd": None}
    changed = record(origin={"estimate": estimate}, state={"started": 0, "updated": 60})
    (found,) = outcomes(changed)
    assert found.texts == ("time", "40 s (10 s to 1:30)", "1:00", "+50%")
    assert found.document()["ratio"] == 1.5


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ({"state": {"state": "running"}}, []),
        ({"origin": {"estimate": {}}}, []),
        ({"origin": {"estimate": {"seconds": "soon"}}}, []),
        ({"state": {"state": "stopped"}}, ["time", "cost, expected for only the workers"]),
        ({"attempts": 2}, ["time", "cost, expected for only the workers"]),
        ({"result": {"epoch_seconds": None}}, ["time", "cost, expected for only the workers"]),
    ],
)
def test_only_comparable_values_are_compared(parts: dict[str, Any], names: list[str]) -> None:
    changed = with_estimate()
    for name, value in parts.items():
        changed[name] = {**changed[name], **value} if isinstance(value, dict) else value
    assert [each.name for each in outcomes(changed)] == names
