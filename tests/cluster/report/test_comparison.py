"""Comparing runs."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any

import pytest

from cluster.report.comparison import Spread, compare
from cluster.report.run_report import SCALING, SPEED_PER_NODE, TEST_ACCURACY, RunReport, report_of
from tests.cluster.report.recorded_runs import DIGITS, RESUMED, another, changed, raw, report


def on_nodes(found: RunReport, nodes: int, per_node: float) -> RunReport:
    """Return a run with another node count and speed."""
    headlines = tuple(
        dataclasses.replace(each, value=per_node) if each.key == SPEED_PER_NODE else each for each in found.headlines
    )
    return dataclasses.replace(found, nodes=nodes, headlines=headlines)


def test_runs_that_differ_only_in_the_seed_are_repeats() -> None:
    found = compare([another(1), another(2, learning_rate=0.1), another(3, seed=7), another(4)])
    assert [(group.label, group.runs) for group in found.repeats] == [("A", (0, 2, 3)), ("B", (1,))]
    assert found.labels == ("A1", "B", "A2", "A3")
    many = compare([another(number, epochs=number) for number in range(30)])
    assert many.labels[-5:] == ("Z", "AA", "AB", "AC", "AD")


@pytest.mark.parametrize(
    "other",
    [
        report_of(changed(spec={"payload": "other"})),
        report_of(changed(spec={"controller": "mpi"})),
        report_of(changed(result={"versions": {"tensorflow": "2.22.0"}})),
        report_of(changed(origin={"instance_types": {"i-1": "p5.48xlarge"}})),
        on_nodes(report(), 4, 800.0),
    ],
)
def test_runs_with_other_code_launcher_versions_machines_or_node_count_are_no_repeats(other: RunReport) -> None:
    assert len(compare([report(), other]).repeats) == 2


def test_runs_of_a_program_with_other_arguments_are_no_repeats() -> None:
    def run(rate: str) -> RunReport:
        program = {"recipe": "train", "program": "b" * 16, "payload": "", "command": ["train.py", "--lr", rate]}
        return report_of(changed(spec=program, result=None))

    assert [group.runs for group in compare([run("0.1"), run("0.2"), run("0.1")]).repeats] == [(0, 2), (1,)]


def test_repeats_have_mean_and_spread_of_each_figure() -> None:
    accuracies = [0.90, 0.92, 0.97]
    (group,) = compare([another(n, accuracy=value, seed=n) for n, value in enumerate(accuracies)]).repeats
    mean, deviation = statistics.fmean(accuracies), statistics.stdev(accuracies)
    assert group.figures[TEST_ACCURACY] == Spread(count=3, mean=mean, deviation=deviation, least=0.90, most=0.97)
    assert Spread.of([3.0, None]) == Spread(count=1, mean=3.0, deviation=None, least=3.0, most=3.0)
    assert Spread.of([None]) is None


def test_curves_of_repeats_are_the_means_of_the_epochs_that_all_have() -> None:
    one, other = another(1), another(2, seed=2)
    halved = tuple(
        dataclasses.replace(point, evaluation_accuracy=(point.evaluation_accuracy or 0) / 2, evaluation_loss=None)
        for point in other.curves.epochs[:15]
    )
    found = compare([one, dataclasses.replace(other, curves=dataclasses.replace(other.curves, epochs=halved))])
    (group,) = found.repeats
    assert [point.epoch for point in group.epochs] == list(range(1, 16))
    for point, measured in zip(group.epochs, one.curves.epochs, strict=False):
        assert (
            point.evaluation_accuracy is not None
            and measured.evaluation_accuracy is not None
            and point.evaluation_loss is None
        )
        assert point.evaluation_accuracy.mean == pytest.approx(0.75 * measured.evaluation_accuracy)


def test_scaling_is_relative_to_the_run_on_the_fewest_nodes() -> None:
    found = compare([on_nodes(another(1), 8, 720.0), on_nodes(another(2), 2, 900.0)])
    shares = {run.run_id: line[-1].value for run, line in zip(found.runs, found.headlines, strict=True)}
    assert shares == {"run-1": 0.8, "run-2": 1.0}
    assert found.headlines[0][-1].key == SCALING
    unknown = dataclasses.replace(report_of(changed(result=None)), nodes=4)
    unknown = dataclasses.replace(
        unknown, headlines=tuple(dataclasses.replace(h, value=None) for h in unknown.headlines)
    )
    assert compare([on_nodes(another(1), 2, 900.0), unknown]).headlines[1][-1].text == "unknown"
    assert compare([on_nodes(another(1), 2, 0.0), on_nodes(another(2), 4, 5.0)]).headlines[1][-1].value is None
    assert all(each.key != SCALING for each in compare([another(1), another(2)]).headlines[0])
    one, other = (report_of(changed(spec={"recipe": "train", "program": letter * 16})) for letter in "ab")
    assert compare([on_nodes(one, 2, 900.0), on_nodes(one, 4, 900.0)]).headlines[1][-1].value == 1.0
    assert compare([on_nodes(one, 2, 900.0), on_nodes(other, 4, 900.0)]).headlines[1][-1].key != SCALING


def differing(*runs: RunReport) -> dict[str, Any]:
    return {each.name: each.values for each in compare(runs).settings if each.differs}


def test_exactly_the_different_settings_are_found() -> None:
    changes = {"learning_rate": ("0.05", "0.1"), "seed": ("1", "4"), "new_setting": ("-", "3")}
    assert differing(another(1), another(2, learning_rate=0.1, seed=4, new_setting=3)) == changes
    same = {each.name for each in compare([another(1), another(2)]).settings if not each.differs}
    assert same >= raw()["result"]["settings"].keys() | {"nodes", "ranks"}
    assert differing(report(DIGITS), report(RESUMED))["epochs"] == ("20", "60")
