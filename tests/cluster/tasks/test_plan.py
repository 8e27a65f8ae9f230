"""`fab plan --calibrate`: its measurements, and requests that it rejects before they cost anything."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.errors import UsageError
from cluster.planner import cluster_prices
from cluster.planner.calibration import Calibration
from cluster.planner.candidates import HourlyPrices
from cluster.planner.cluster_prices import ClusterPrices
from cluster.runs import archive
from cluster.runs.work import RecipeFlags
from cluster.session import Session
from cluster.tasks import bench
from cluster.tasks.plan import Bounds, plan
from payload.settings.bench import TRAINING, BenchSettings
from tests.cluster.planner.test_calibration import rate
from tests.factories import make_instance, make_inventory


@dataclasses.dataclass
class Planner:
    """`fab plan` on a cluster with workers of these types. Measurements cost nothing and are recorded."""

    workers: tuple[str, ...] = ("c5.2xlarge", "c5.2xlarge")
    measured: list[BenchSettings] = dataclasses.field(default_factory=list)

    def plan(self, recipe: str, *further: str, **flags: Any) -> None:
        """Run `fab plan --calibrate` with these flags, and words after `--`."""
        sys.argv[1:] = ["plan", "--", *further]
        given = {"recipe": RecipeFlags(recipe=recipe), "bounds": Bounds(), "calibrate": True, "json": True, **flags}
        plan.body(**given)


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Planner:
    """Return a planner on two workers that asks no questions."""
    found = Planner()

    def measure(session: Session, settings: BenchSettings, **_: Any) -> str:
        found.measured.append(settings)
        monkeypatch.setattr(Session, "calibration", Calibration(rates=(rate(),)))
        return "one"

    def inventory(_: Session) -> Any:
        instances = [make_instance(number, type=kind) for number, kind in enumerate(found.workers, 1)]
        return make_inventory(instances=tuple(instances))

    prices = dict.fromkeys(("c5.2xlarge", "p3.16xlarge"), HourlyPrices(node=1.0))
    words = {"included": "workers", "excluded": "storage and traffic"}
    known = ClusterPrices(region="us-east-1", region_is_set=True, by_type=prices, fixed={}, date="", **words)
    monkeypatch.setattr(sys, "argv", ["fab"])
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setattr(Session, "load_inventory", inventory)
    monkeypatch.setattr(Session, "calibration", Calibration())
    monkeypatch.setattr(cluster_prices, "look_up", lambda *_, **__: known)
    monkeypatch.setattr(bench, "measure", measure)
    monkeypatch.setattr(archive, "fetch_run", lambda *_: SimpleNamespace(directory="runs/one"))
    return found


def test_the_plan_is_by_what_was_measured(planner: Planner, capsys: pytest.CaptureFixture[str]) -> None:
    planner.plan("digits", nodes="1,2")
    (settings,) = planner.measured
    assert (settings.nodes, settings.networks, settings.batch_sizes) == ((1, 2), ("lenet",), (32,))
    assumed = json.loads(capsys.readouterr().out)["assumptions"]["c5.2xlarge"]["images_s"]
    assert (assumed["evidence"], assumed["value"]) == ("calibrated", 100.0)


@pytest.mark.parametrize(
    ("workers", "recipe", "further", "batch"),
    [
        (("p3.16xlarge",) * 4, "benchmark", ("--global-batch", "2048"), 64),  # 32 GPUs
        (("p3.16xlarge",), "imagenet-fast", (), 224),  # from its phases
        (("c5.2xlarge",) * 8, "digits", (), 16),  # at most 128 images per step
    ],
)
def test_a_rank_has_the_batch_that_it_would_have_in_the_recipe_on_all_workers(
    planner: Planner, workers: tuple[str, ...], recipe: str, further: tuple[str, ...], batch: int
) -> None:
    planner.workers = workers
    planner.plan(recipe, *further, instance=workers[0])
    (settings,) = planner.measured
    cells = [each for each in settings.cells() if each.kind == TRAINING]
    assert {(each.batch_per_rank, each.nodes) for each in cells} == {(batch, 1), (batch, len(workers))}


def test_workers_of_several_types_are_refused_before_anything_is_measured(planner: Planner) -> None:
    planner.workers = ("c5.2xlarge", "c5.4xlarge")
    with pytest.raises(UsageError, match=r"--calibrate: .*one type, but this cluster has c5\.2xlarge, c5\.4xlarge"):
        planner.plan("digits", instance="c5.2xlarge,c5.4xlarge")
    assert planner.measured == []


def test_workers_of_a_type_that_is_not_compared_are_refused_before_anything_is_measured(planner: Planner) -> None:
    with pytest.raises(UsageError, match=r"does not include c5\.2xlarge, the type of the workers"):
        planner.plan("digits", instance="p3.16xlarge")
    assert planner.measured == []


@pytest.mark.parametrize(
    ("further", "flags", "rule"),
    [
        ((), {"to_target": True}, "--to-target: .*leave the flag out"),
        (("--train-limit", "100"), {"nodes": "1,16"}, "choose fewer nodes"),
        ((), {"instance": "c5.2xlarge,g7.12xlarge"}, "the speed of the GPU"),
    ],
)
def test_a_question_without_an_answer_is_refused_before_anything_is_measured(
    planner: Planner, further: tuple[str, ...], flags: dict[str, Any], rule: str
) -> None:
    with pytest.raises(UsageError, match=rule):
        planner.plan("benchmark", *further, **flags)
    assert planner.measured == []


def test_too_many_workers_for_the_data_are_rejected_before_measuring(
    planner: Planner,
) -> None:
    with pytest.raises(UsageError, match="--calibrate: measures all 2 workers, but 2 ranks use 64 images per step"):
        planner.plan("benchmark", "--train-limit", "50", nodes="1")
    assert planner.measured == []


def test_a_batch_that_no_benchmark_can_have_is_refused_by_name(planner: Planner) -> None:
    planner.workers = ("c5.2xlarge",)
    with pytest.raises(UsageError, match=r"--batch-sizes = 200000: .*--calibrate cannot measure it"):
        planner.plan("benchmark", "--global-batch", "200000", "--train-limit", "400000")
    assert planner.measured == []
