"""The estimate of one run."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from cluster.planner.calibration import Calibration
from cluster.planner.run_estimate import RunEstimate, estimate_run
from payload.recipes.digits import DIGITS
from payload.recipes.imagenet_90 import IMAGENET_90
from stacks.config import ClusterConfig
from tests.cluster.planner.test_calibration import rate, start


def estimate(recipe: Any = DIGITS, kind: str = "c5.2xlarge", nodes: int = 2, **words: Any) -> RunEstimate | str:
    """Return the estimate of a recipe on running nodes."""
    given = {"nodes_are_up": True, "usd_per_hour": 0.34, **words}
    return estimate_run(lambda _: recipe.settings, kind, nodes, ClusterConfig(), **given)


def known(found: RunEstimate | str) -> RunEstimate:
    """Return an estimate, and check that there is one."""
    assert isinstance(found, RunEstimate)
    return found


def test_nodes_that_are_up_start_sooner_and_cost_their_hours() -> None:
    up, down = known(estimate()), known(estimate(nodes_are_up=False))
    assert up.seconds.value < down.seconds.value - 100
    assert up.usd is not None
    assert up.usd.value == pytest.approx(up.seconds.value / 3600 * 2 * 0.34)


def test_estimate_has_text_and_json_form() -> None:
    found = known(estimate())
    assert str(found).startswith("estimated: ")
    assert str(found).endswith("most of it start-up")
    assert "price unknown" in str(known(estimate(usd_per_hour=None)))
    document = json.loads(json.dumps(found.document()))
    assert document["seconds"]["low"] < document["seconds"]["value"] < document["seconds"]["high"]
    assert known(estimate(usd_per_hour=None)).document()["usd"] is None


def test_more_ranks_a_node_share_its_cores() -> None:
    one, four = known(estimate()), known(estimate(ranks_per_node="cores"))
    assert four.seconds.value == pytest.approx(one.seconds.value, rel=0.2)


def test_unknown_workload_has_a_reason_instead_of_an_estimate() -> None:
    assert "the speed of the GPU RTX PRO 4500" in str(estimate(IMAGENET_90, "g7.12xlarge"))
    assert "no estimate: c5.2xlrge: not in the table of instance types; did you mean" in str(estimate(kind="c5.2xlrge"))
    many = dataclasses.replace(DIGITS, settings=dataclasses.replace(DIGITS.settings, global_batch_limit=1 << 20))
    assert str(estimate(many, nodes=64)).startswith("no estimate: a step on 64 ranks uses 2048 images")


def test_earlier_run_replaces_estimated_rate_and_is_named() -> None:
    past = Calibration(rates=(rate(value=50.0, low=40.0, high=60.0),), starts=(start(),))
    found, before = known(estimate(calibration=past)), known(estimate())
    assert found.seconds.value > before.seconds.value
    assert "; training speed from run new of 2026-11-18, on 2 x c5.2xlarge" in str(found)
    assert "; training speed from run" not in str(before)
    assert found.document()["rate_source"].startswith("calibrated: run new")
    assert found.parts.start_up == 20.0
