"""Predict DAWNBench's times and costs from only a GPU's published rate, the link and the schedules."""

from __future__ import annotations

import pytest

from cluster.cli import PROJECT
from cluster.planner.assumptions import assume
from cluster.planner.hardware import hardware_of
from cluster.planner.run_time import Cluster, Parts, run_seconds
from cluster.terminal.units import duration
from payload.recipes.imagenet_fast import VARIANTS
from payload.settings.image_phases import parse_phases
from tests.cluster.planner.fast_ai_2018 import DAWNBENCH, README, PublishedRun

P3 = hardware_of("p3.16xlarge")


def predicted(run: PublishedRun) -> Parts:
    """Return the estimate of a published run; all runs use the same assumptions."""
    assumed = assume(run.workload, P3).at("start_up_s", 0.0)  # DAWNBench's clock starts with the first step.
    return run_seconds(run.workload, Cluster(hardware=P3, nodes=run.nodes), assumed)


def usd(run: PublishedRun) -> float:
    """Return the cost of a published run, from its estimated time and the price in its entry."""
    return predicted(run).total / 3600 * run.usd_per_hour


@pytest.mark.parametrize("run", (*DAWNBENCH, *README), ids=lambda run: f"{run.name}, {run.minutes:.1f} min")
def test_each_published_run_is_predicted_within_15_percent(run: PublishedRun) -> None:
    assert predicted(run).total / 60 == pytest.approx(run.minutes, rel=0.15)
    assert usd(run) == pytest.approx(run.usd, rel=0.15)


def test_batches_match_the_recipe() -> None:
    for run, variant in zip(README, VARIANTS, strict=True):
        phases = parse_phases(variant.overrides["image_phases"], smallest_crop=0.08, rectangular=False)
        ours = [(phase.size, phase.global_batch) for phase in phases]
        assert [(phase.size, phase.global_batch) for phase in run.workload.phases] == ours
        assert run.workload.epochs == variant.target_epochs
        starts = [sum(phase.epochs for phase in run.workload.phases[:n]) for n in range(len(ours))]
        assert starts == [phase.start for phase in phases]


@pytest.mark.parametrize("run", (*DAWNBENCH, *README), ids=lambda run: f"{run.name}, {run.minutes:.1f} min")
def test_guide_shows_the_predictions(run: PublishedRun) -> None:
    parts = predicted(run)
    shares = [f"{part / parts.total:.0%}" for part in (parts.communication, parts.input)]
    times = [duration(run.minutes * 60), duration(parts.total), f"{parts.total / 60 / run.minutes - 1:+.0%}"]
    cells = [run.name, *times, f"${run.usd:.2f}", f"${usd(run):.2f}", *shares]
    row = f"| {' | '.join(cells)} |"
    assert row in (PROJECT / "docs" / "plan.md").read_text(encoding="utf-8").splitlines(), row
