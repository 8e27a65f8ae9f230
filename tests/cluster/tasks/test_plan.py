"""`fab plan`: the answer as a document, and as tables with a picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster.planner import cluster_prices
from cluster.planner.calibration import Calibration
from cluster.planner.candidates import HourlyPrices
from cluster.planner.cluster_prices import ClusterPrices
from cluster.runs.recipe_or_program import RecipeFlags
from cluster.session import Session
from cluster.tasks.plan import PlanLimits, plan
from tests.cluster.planner.test_calibration import rate


@pytest.mark.parametrize("as_json", [True, False])
def test_plan_by_an_earlier_run_is_printed_and_drawn(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {"included": "workers", "excluded": "storage and traffic", "date": ""}
    prices = {"c5.2xlarge": HourlyPrices(node=1.0)}
    known = ClusterPrices(region="us-east-1", region_is_set=True, by_type=prices, fixed={}, **words)
    monkeypatch.setattr(sys, "argv", ["fab", "plan", "--", "--epochs", "1"])
    monkeypatch.setattr(Session, "calibration", Calibration(rates=(rate(),)))
    monkeypatch.setattr(cluster_prices, "look_up", lambda *_, **__: known)
    picture = tmp_path / "plan.png"
    flags: dict[str, Any] = {"nodes": "1,2", "plot": str(picture), "assumptions": True, "json": as_json}
    plan.body(recipe=RecipeFlags(recipe="digits"), bounds=PlanLimits(), **flags)
    printed = capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
    if as_json:
        answer = json.loads(printed)
        assert answer["assumptions"]["c5.2xlarge"]["images_s"]["value"] == 100.0
        assert (len(answer["candidates"]), answer["plot"]) == (2, str(picture))
    else:
        text = " ".join(printed.split())
        assert "assumptions for c5.2xlarge" in text and "because it has the lowest product of time and cost" in text
        assert f"written: {picture}" in text
