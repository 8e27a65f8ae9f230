"""Facts about what earlier runs put in the place of estimated figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.planner.assumptions import Assumptions, assume
from cluster.planner.calibration import Calibration, read_calibration
from cluster.planner.hardware import hardware_of
from cluster.planner.past_runs import PastRate, PastStart
from cluster.planner.recipe_workload import workload_of
from payload.recipes.digits import DIGITS
from tests.cluster.planner.test_past_runs import record

HARDWARE = hardware_of("c5.2xlarge")
WORKLOAD = workload_of(DIGITS.settings, 2)


def rate(run_id: str = "new", **other: Any) -> PastRate:
    known: dict[str, Any] = {
        "finished": 1_795_000_000.0, "network": "lenet", "precision": "float32", "instance_type": "c5.2xlarge",
        "ranks_per_node": 1, "embedded": False, "nodes": 2, "low": 90.0, "value": 100.0, "high": 110.0,
    }  # fmt: skip
    return PastRate(run_id=run_id, **{**known, **other})


def start(run_id: str = "new", **other: Any) -> PastStart:
    known: dict[str, Any] = {
        "finished": 1_795_000_000.0,
        "instance_type": "c5.2xlarge",
        "embedded": False,
        "seconds": 20.0,
    }
    return PastStart(run_id=run_id, **{**known, **other})


def applied(*rates: PastRate, starts: tuple[PastStart, ...] = (), **words: Any) -> Assumptions:
    found = Calibration(rates=rates, starts=starts, embedded=words.pop("embedded", False))
    return found.apply(assume(WORKLOAD, HARDWARE), WORKLOAD, HARDWARE, efa=False, together=True, **words)


def test_the_newest_run_gives_the_figure_and_all_of_them_the_range() -> None:
    older = rate("old", finished=1_794_000_000.0, low=60.0, value=70.0, high=150.0)
    figure = applied(rate(), older).images_s
    assert (figure.low, figure.value, figure.high, figure.evidence) == (60.0, 100.0, 150.0, "calibrated")
    assert figure.source == "run new of 2026-11-18, on 2 x c5.2xlarge; the range is that of 2 runs"
    assert applied(rate()).images_s.source.endswith("on 2 x c5.2xlarge")


@pytest.mark.parametrize(
    "other",
    [
        {"network": "resnet50"},
        {"precision": "bfloat16"},
        {"instance_type": "c5.4xlarge"},
        {"ranks_per_node": 4},
        {"embedded": True},
    ],
)
def test_another_network_precision_or_kind_of_node_says_nothing(other: dict[str, Any]) -> None:
    assert applied(rate(**other)) == assume(WORKLOAD, HARDWARE)


def test_runs_of_an_embedded_cloud_count_there_and_those_of_aws_do_not() -> None:
    assert applied(rate(embedded=True), embedded=True).images_s.value == 100.0
    assert applied(rate(), embedded=True) == assume(WORKLOAD, HARDWARE)


def test_a_start_up_counts_where_the_nodes_are_up_alone() -> None:
    starts = (start(), start("old", seconds=30.0))
    figure = applied(starts=starts, nodes_are_up=True).start_up_s
    assert (figure.low, figure.value, figure.high) == (10.0, 20.0, 45.0)
    assert applied(starts=starts).start_up_s == assume(WORKLOAD, HARDWARE).start_up_s


def test_fetched_runs_are_read_the_newest_first_and_what_is_no_record_is_passed_over(tmp_path: Path) -> None:
    first, last = record(), record(run_id="20270101-000000-digits-ab12")
    last["state"] |= {"updated": first["state"]["updated"] + 10, "run_id": last["run_id"]}
    last["spec"] |= {"run_id": last["run_id"]}
    for found in (first, last):
        (tmp_path / found["run_id"]).mkdir()
        (tmp_path / found["run_id"] / "record.json").write_text(json.dumps(found))
    for name, text in (("damaged", "{"), ("foreign", "[1]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "record.json").write_text(text)
    found_runs = read_calibration(tmp_path)
    assert [each.run_id for each in found_runs.rates] == [last["run_id"], first["run_id"]]
    assert [each.run_id for each in found_runs.starts] == [last["run_id"], first["run_id"]]
    assert read_calibration(tmp_path / "absent") == Calibration()
